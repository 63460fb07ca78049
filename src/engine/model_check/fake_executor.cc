#include "engine/model_check/fake_executor.h"

#include <algorithm>

#include "base/hash.h"
#include "base/result.h"
#include "kv/model_check/content.h"

namespace kvern::engine::model_check {
namespace {

using kv::model_check::Require;

constexpr int64_t kStepUs = 200;
constexpr int64_t kTokenUs = 20;
constexpr int64_t kRowsPerUs = 64;
constexpr uint64_t kVoidRow = 0xDEADDEADDEADDEAD;

size_t EndOf(const Slice& slice) { return slice.first_position + slice.tokens.size(); }

// Of the first block that a token of the slice may read.
size_t FirstVisibleBlock(const kv::GroupSpec& group, const Slice& slice) {
  if (group.kind != kv::GroupKind::kWindow) return 0;
  const size_t first = slice.first_position + size_t{1};
  return (first - std::min<size_t>(first, group.window)) / kBlockTokens;
}

}  // namespace

FakeExecutor::FakeExecutor(const FakeModel* model, ExecutorInfo info, size_t step_tokens,
                           FakeClock* clock)
    : model_(*model),
      info_(std::move(info)),
      step_tokens_(step_tokens),
      clock_(*clock),
      logits_(info_.vocab_size) {}

Result<std::span<const SliceOutput>> FakeExecutor::Execute(const StepPlan& plan) {
  size_t num_tokens = 0, num_computed = 0, num_rows = 0;  // the latter two in every layer
  Require(!plan.slices.empty(), "a step without slices");
  for (const Slice& slice : plan.slices) {
    CheckSlice(slice);
    num_tokens += slice.tokens.size();
    num_computed += slice.tokens.size() * NumLayers(slice);
    num_rows += EndOf(slice) * NumLayers(slice);
  }
  Require(num_tokens <= info_.max_step_tokens && num_tokens <= step_tokens_,
          "a step of {} tokens exceeds the limit of {}", num_tokens,
          std::min<size_t>(info_.max_step_tokens, step_tokens_));
  CheckBlocks(plan);
  CheckShared(plan);
  CheckLayers(plan);
  Trace(plan);
  clock_.Advance(kStepUs + static_cast<int64_t>(num_computed / info_.num_layers) * kTokenUs +
                 static_cast<int64_t>(num_rows / info_.num_layers) / kRowsPerUs);
  ++counts_.steps;
  if (std::exchange(is_failing_, false)) {
    ++counts_.failed_steps;
    counts_.failed_lone_steps += plan.slices.size() == 1;
    return Errorf(ErrorCode::kOutOfMemory, "the step was refused for the test");
  }
  if (flip_) FlipBitOf(plan);
  counts_.slices += plan.slices.size();
  counts_.tokens += num_tokens;
  counts_.shared_groups += plan.shared.size();
  const auto failing = std::exchange(failing_slice_, std::nullopt);
  outputs_.assign(plan.slices.size(), {});
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    outputs_[i].logits.assign(slice.num_logits, logits_);
    if (carried_ && i + 1 == plan.slices.size()) {
      Void(slice);  // who reads it now reads what is half done
    } else {
      Run(slice, outputs_[i]);
    }
    if (!failing || i != *failing % plan.slices.size()) continue;
    ++counts_.failed_slices;
    Void(slice);
    outputs_[i] = {.status = Errorf(ErrorCode::kNonFinite, "NaN for the test"),
                   .logits = std::move(outputs_[i].logits),
                   .tokens = {}};
  }
  return std::span<const SliceOutput>(outputs_);
}

void FakeExecutor::CheckSlice(const Slice& slice) const {
  const size_t end = EndOf(slice);
  Require(!slice.tokens.empty(), "a slice without tokens");
  Require(slice.num_logits <= slice.tokens.size(), "{} logits are wanted of {} tokens",
          slice.num_logits, slice.tokens.size());
  Require(slice.sample == nullptr || slice.num_logits > 0, "a slice samples without logits");
  Require(!slice.query_only || slice.tokens.size() == 1, "{} tokens that are only queries",
          slice.tokens.size());
  Require(end <= info_.max_positions, "a sequence of {} tokens exceeds the context of {}", end,
          info_.max_positions);
  Require(slice.views.size() == model_.groups.size(), "{} views of {} groups", slice.views.size(),
          model_.groups.size());
  for (const PagedView& view : slice.views) {
    Require(view.num_blocks * size_t{kBlockTokens} >= end, "{} blocks for {} tokens",
            view.num_blocks, end);
  }
  for (const TokenId token : slice.tokens) {
    Require(static_cast<uint32_t>(token) < info_.vocab_size, "token {} is outside the vocabulary",
            static_cast<uint32_t>(token));
  }
  if (slice.sample == nullptr) return;
  const std::span<const TokenId> history = slice.sample->history;
  Require(history.size() == end, "a history of {} tokens for a slice that ends at {}",
          history.size(), end);
  Require(std::ranges::equal(history.last(slice.tokens.size()), slice.tokens),
          "a slice at {} computes other tokens than its history has", slice.first_position);
  Require(slice.sample->num_prompt_tokens <= history.size() - (slice.num_logits - 1),
          "a slice samples inside its prompt");
}

// A block has one writer, and nobody else reads what it writes.
void FakeExecutor::CheckBlocks(const StepPlan& plan) {
  writers_.clear();
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    if (slice.query_only) continue;
    for (const PagedView& view : slice.views) {
      for (size_t b = slice.first_position / kBlockTokens; b * kBlockTokens < EndOf(slice); ++b) {
        const auto [writer, is_first] = writers_.emplace(view.blocks[b], i);
        Require(is_first, "slices {} and {} write the same block at {}", writer->second, i,
                b * kBlockTokens);
      }
    }
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    for (size_t group = 0; group < slice.views.size(); ++group) {
      for (size_t b = FirstVisibleBlock(model_.groups[group], slice);
           b * kBlockTokens < EndOf(slice); ++b) {
        const auto writer = writers_.find(slice.views[group].blocks[b]);
        Require(writer == writers_.end() || writer->second == i,
                "slice {} reads the block at {} that slice {} writes", i, b * kBlockTokens,
                writer == writers_.end() ? i : writer->second);
      }
    }
  }
}

// A group must be what it says: the same blocks, all of them behind every member's new tokens.
void FakeExecutor::CheckShared(const StepPlan& plan) const {
  std::vector<bool> is_grouped(plan.slices.size());
  for (const SharedPrefix& group : plan.shared) {
    Require(group.num_chunks > 0 && !group.slices.empty(), "a shared group of nothing");
    Require(std::ranges::is_sorted(group.slices), "a shared group is not ascending");
    for (const uint32_t index : group.slices) {
      Require(index < is_grouped.size() && !is_grouped[index],
              "slice {} of {} is in a shared group twice or does not exist", index,
              is_grouped.size());
      is_grouped[index] = true;
      const Slice& slice = plan.slices[index];
      Require(slice.first_position / kChunkTokens >= group.num_chunks,
              "slice {} at {} shares {} chunks", index, slice.first_position, group.num_chunks);
      const Slice& first = plan.slices[group.slices[0]];
      for (size_t g = 0; g < slice.views.size(); ++g) {
        Require(std::equal(slice.views[g].blocks,
                           slice.views[g].blocks + group.num_chunks * kChunkBlocks,
                           first.views[g].blocks),
                "slice {} does not share its first {} chunks with its group", index,
                group.num_chunks);
      }
    }
  }
}

uint32_t FakeExecutor::NumLayers(const Slice& slice) const {
  return slice.end_layer.value_or(info_.num_layers) - slice.first_layer;
}

// Only the last slice may leave out layers, and it goes on where the plan before has left it.
void FakeExecutor::CheckLayers(const StepPlan& plan) {
  const Slice& last = plan.slices.back();
  for (const Slice& slice : plan.slices) {
    const uint32_t end = slice.end_layer.value_or(info_.num_layers);
    Require(slice.first_layer < end && end <= info_.num_layers, "layers {} to {} of {}",
            slice.first_layer, end, info_.num_layers);
    Require(&slice == &last || NumLayers(slice) == info_.num_layers,
            "a slice that is not the last leaves out layers");
  }
  const bool is_part = NumLayers(last) < info_.num_layers;
  counts_.parts += is_part;
  Require(!is_part || last.tokens.size() <= info_.max_carried_tokens, "{} tokens between layers",
          last.tokens.size());
  for (const SharedPrefix& group : plan.shared) {
    Require(!is_part || group.slices.back() + 1 < plan.slices.size(),
            "a slice that leaves out layers is in a shared group");
  }
  Carried here = {.block = last.views[0].blocks[last.first_position / kBlockTokens],
                  .first_position = last.first_position,
                  .tokens_hash = Hash64(std::as_bytes(last.tokens), 0),
                  .next_layer = last.first_layer};
  if (last.first_layer > 0) {
    Require(carried_ && carried_->block == here.block &&
                carried_->first_position == here.first_position &&
                carried_->tokens_hash == here.tokens_hash &&
                carried_->next_layer == here.next_layer,
            "a slice at {} goes on at layer {} where nothing was left", here.first_position,
            here.next_layer);
  }
  carried_.reset();
  if (!last.end_layer || *last.end_layer == info_.num_layers) return;
  Require(last.num_logits == 0, "logits are wanted before the last layer");
  here.next_layer = *last.end_layer;
  carried_ = here;
}

void FakeExecutor::Trace(const StepPlan& plan) {
  std::vector<uint64_t> numbers;
  for (const Slice& slice : plan.slices) {
    numbers.insert(numbers.end(), {slice.tokens.size(), slice.first_position, slice.num_logits,
                                   slice.sample != nullptr, slice.query_only, slice.first_layer,
                                   NumLayers(slice)});
    for (const TokenId token : slice.tokens) numbers.push_back(static_cast<uint64_t>(token));
    for (const PagedView& view : slice.views) numbers.push_back(view.num_blocks);
  }
  for (const SharedPrefix& group : plan.shared) {
    numbers.push_back(group.num_chunks);
    numbers.insert(numbers.end(), group.slices.begin(), group.slices.end());
  }
  numbers.push_back(static_cast<uint64_t>(clock_.now_us()));
  trace_ = Hash64(std::as_bytes(std::span(numbers)), trace_);
}

void FakeExecutor::FlipBitOf(const StepPlan& plan) {
  const uint64_t random = *flip_;
  const Slice& slice = plan.slices[random % plan.slices.size()];
  if (slice.first_position == 0) return;
  const PagedView& view = slice.views[0];
  const size_t position = (random >> 8) % slice.first_position;
  SetRow(view, position, RowAt(view, position) ^ uint64_t{1} << (random >> 32) % 64);
  flip_.reset();
}

void FakeExecutor::Run(const Slice& slice, SliceOutput& output) {
  RowReader reader(&model_);
  const auto context_at = [&](size_t position) {
    const auto context = reader.Context(slice.views, position);
    Require(context.has_value(), "a slice at {} reads a row below {} that was never written",
            slice.first_position, position);
    return *context;
  };
  const size_t first_logits = slice.tokens.size() - slice.num_logits;
  bool is_sampling = slice.sample != nullptr;
  counts_.drafts += is_sampling ? slice.num_logits - 1 : 0;
  for (size_t i = 0; i < slice.tokens.size(); ++i) {
    const size_t position = slice.first_position + i;
    const uint64_t context = context_at(position);
    for (size_t group = 0; group < slice.views.size(); ++group) {
      const uint64_t row = MakeRow(context, slice.tokens[i], position, group);
      if (slice.query_only) {
        output.stored_differs |= RowAt(slice.views[group], position) != row;
      } else {
        SetRow(slice.views[group], position, row);
      }
    }
    counts_.query_only += slice.query_only;
    if (!is_sampling || i < first_logits) continue;
    SampleAt(slice, i, context_at(position + 1), output);
    const bool is_last = i + 1 == slice.tokens.size();
    is_sampling = !is_last && output.tokens.back().id == slice.tokens[i + 1];
    counts_.accepted += is_sampling;
  }
}

void FakeExecutor::SampleAt(const Slice& slice, size_t index, uint64_t context,
                            SliceOutput& output) {
  const size_t num_later = slice.tokens.size() - 1 - index;
  const std::span<const TokenId> history = slice.sample->history;
  output.tokens.push_back(Sample(model_, context, *slice.sample,
                                 history.first(history.size() - num_later),
                                 slice.first_position + index + 1));
}

// What it stored is no longer true of any text.
void FakeExecutor::Void(const Slice& slice) {
  if (slice.query_only) return;
  for (size_t position = slice.first_position; position < EndOf(slice); ++position) {
    for (const PagedView& view : slice.views) SetRow(view, position, kVoidRow);
  }
}

}  // namespace kvern::engine::model_check
