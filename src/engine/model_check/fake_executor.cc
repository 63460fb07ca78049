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

// In all layers.
int64_t TimeOf(const Slice& slice) {
  return static_cast<int64_t>(slice.tokens.size()) * kTokenUs +
         static_cast<int64_t>(EndOf(slice)) / kRowsPerUs;
}

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
  size_t num_tokens = 0;
  Require(!plan.slices.empty(), "a step without slices");
  for (const Slice& slice : plan.slices) {
    CheckSlice(slice);
    num_tokens += slice.tokens.size();
  }
  Require(num_tokens <= info_.max_step_tokens && num_tokens <= step_tokens_,
          "a step of {} tokens exceeds the limit of {}", num_tokens,
          std::min<size_t>(info_.max_step_tokens, step_tokens_));
  CheckBlocks(plan);
  CheckShared(plan);
  CheckChunk(plan);
  Trace(plan);
  const auto whole = std::span(plan.slices).first(plan.slices.size() - plan.slices.back().is_chunk);
  clock_.Advance(kStepUs);
  for (const Slice& slice : whole) clock_.Advance(TimeOf(slice));
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
    if (plan.slices[i].is_chunk) {
      RunChunk(plan, outputs_[i]);
    } else {
      Run(plan.slices[i], outputs_[i]);
    }
    if (failing && i == *failing % plan.slices.size()) Fail(plan.slices[i], outputs_[i]);
  }
  return std::span<const SliceOutput>(outputs_);
}

// Layer by layer, as far as there is time.
void FakeExecutor::RunChunk(const StepPlan& plan, SliceOutput& output) {
  const Slice& chunk = plan.slices.back();
  const int64_t layer_us = TimeOf(chunk) / info_.num_layers;
  uint32_t next = chunk.first_layer;
  bool has_time = plan.pace == nullptr || plan.pace->Begin();
  while (has_time && next < info_.num_layers) {
    clock_.Advance(layer_us);
    has_time = ++next == info_.num_layers || plan.pace == nullptr || plan.pace->HasTime();
  }
  carried_.reset();
  counts_.parts += next - chunk.first_layer < info_.num_layers;
  if (next == info_.num_layers) return Run(chunk, output);
  output.next_layer = next;
  if (next > 0) carried_ = CarriedOf(chunk, next);
  Void(chunk);  // who reads it now reads what is half done
}

void FakeExecutor::Fail(const Slice& slice, SliceOutput& output) {
  ++counts_.failed_slices;
  Void(slice);
  output.status = Errorf(ErrorCode::kNonFinite, "NaN for the test");
  output.tokens.clear();
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

// Only the last slice may be left between layers, and it goes on where it was left.
void FakeExecutor::CheckChunk(const StepPlan& plan) const {
  const Slice& last = plan.slices.back();
  for (const Slice& slice : plan.slices) {
    Require(slice.first_layer < info_.num_layers, "layer {} of {}", slice.first_layer,
            info_.num_layers);
    Require(slice.is_chunk || slice.first_layer == 0, "a slice that is no chunk leaves out layers");
    Require(&slice == &last || !slice.is_chunk, "a chunk is not the last slice");
  }
  if (!last.is_chunk) return;
  Require(last.tokens.size() <= info_.max_carried_tokens, "{} tokens between layers",
          last.tokens.size());
  for (const SharedPrefix& group : plan.shared) {
    Require(group.slices.back() + 1 < plan.slices.size(), "a chunk is in a shared group");
  }
  Require(last.first_layer == 0 || carried_ == CarriedOf(last, last.first_layer),
          "a chunk at {} goes on at layer {} where nothing was left", last.first_position,
          last.first_layer);
}

FakeExecutor::Carried FakeExecutor::CarriedOf(const Slice& chunk, uint32_t next_layer) const {
  return {.block = chunk.views[0].blocks[chunk.first_position / kBlockTokens],
          .first_position = chunk.first_position,
          .tokens_hash = Hash64(std::as_bytes(chunk.tokens), 0),
          .next_layer = next_layer};
}

void FakeExecutor::Trace(const StepPlan& plan) {
  std::vector<uint64_t> numbers;
  for (const Slice& slice : plan.slices) {
    numbers.insert(numbers.end(),
                   {slice.tokens.size(), slice.first_position, slice.num_logits,
                    slice.sample != nullptr, slice.query_only, slice.is_chunk, slice.first_layer});
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
  output.next_layer = info_.num_layers;
  output.logits.assign(slice.num_logits, logits_);
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
