#include "engine/exec/cpu.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/sampling.h"
#include "model/forward.h"

namespace kvern::engine {
namespace {

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const compute::Isa* isa, ThreadTeam* team, std::unique_ptr<model::Forward> forward,
              ExecutorInfo info)
      : team_(*team), forward_(std::move(forward)), info_(std::move(info)) {
    for (size_t i = 0; i < team_.size(); ++i) {
      info_.scratch_bytes += samplers_.emplace_back(isa->rows, info_.vocab_size).bytes();
    }
  }

  const ExecutorInfo& info() const override { return info_; }

  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    KVERN_RETURN_IF_ERROR(CheckLimits(plan));
    size_t num_rows = 0;
    for (const Slice& slice : plan.slices) num_rows += slice.num_logits;
    KVERN_RETURN_IF_ERROR(ReserveLogits(num_rows));
    if (outputs_.size() < plan.slices.size()) outputs_.resize(plan.slices.size());
    logits_row_ = logits_.as<float>();
    const size_t num_whole = plan.slices.size() - (HasChunk(plan) ? 1 : 0);
    Run(plan, 0, num_whole);
    if (num_whole < plan.slices.size()) RunChunk(plan);
    return std::span<const SliceOutput>(outputs_).first(plan.slices.size());
  }

 private:
  static model::ForwardSlice ForwardSliceOf(const Slice& slice, Pace* pace) {
    return {slice.tokens,
            slice.first_position,
            slice.views[0],
            slice.num_logits,
            slice.query_only,
            slice.first_layer,
            slice.is_chunk ? pace : nullptr};
  }
  static bool HasChunk(const StepPlan& plan) {
    return !plan.slices.empty() && plan.slices.back().is_chunk;
  }

  void RunChunk(const StepPlan& plan) {
    const size_t index = plan.slices.size() - 1;
    if (plan.pace == nullptr || plan.pace->Begin()) return Run(plan, index, index + 1);
    const Slice& chunk = plan.slices[index];
    BeginOutput(chunk, {.next_layer = chunk.first_layer}, static_cast<uint32_t>(index));
  }

  // Slices [begin, end): all but the chunk, or it alone.
  void Run(const StepPlan& plan, size_t begin, size_t end) {
    if (begin == end) return;
    slices_.clear();
    shared_.clear();
    size_t num_rows = 0;
    for (size_t i = begin; i < end; ++i) {
      slices_.push_back(ForwardSliceOf(plan.slices[i], plan.pace));
      num_rows += plan.slices[i].num_logits;
    }
    if (begin == 0) {
      for (const SharedPrefix& group : plan.shared) {
        shared_.push_back({group.slices, group.num_chunks});
      }
    }
    const size_t num_floats = num_rows * forward_->logits_stride();
    const auto outcomes = forward_->Run({slices_, shared_}, {logits_row_, num_floats});
    to_sample_.clear();
    for (size_t i = begin; i < end; ++i) {
      BeginOutput(plan.slices[i], outcomes[i - begin], static_cast<uint32_t>(i));
    }
    SampleAll(plan);
  }

  struct SampleTask {
    uint32_t slice;
    size_t num_tokens;  // sampled
  };

  Status CheckLimits(const StepPlan& plan) {
    size_t num_tokens = 0;
    for (const Slice& slice : plan.slices) {
      KVERN_RETURN_IF_ERROR(CheckSlice(slice));
      KVERN_RETURN_IF_ERROR(CheckLayers(slice, &slice == &plan.slices.back()));
      num_tokens += slice.tokens.size();
    }
    if (num_tokens > info_.max_step_tokens) {
      return Errorf(ErrorCode::kInvalidArgument, "a step of {} tokens exceeds the limit of {}",
                    num_tokens, info_.max_step_tokens);
    }
    return CheckShared(plan);
  }

  Status CheckSlice(const Slice& slice) const {
    const size_t end = slice.first_position + slice.tokens.size();
    if (slice.tokens.empty() || slice.num_logits > slice.tokens.size() ||
        (slice.sample != nullptr && slice.num_logits == 0)) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "a slice of {} tokens cannot give logits of {}, nor sample without any",
                    slice.tokens.size(), slice.num_logits);
    }
    if (slice.query_only && slice.tokens.size() != 1) {
      return Errorf(ErrorCode::kInvalidArgument, "a query-only slice has one token, not {}",
                    slice.tokens.size());
    }
    if (end > info_.max_positions) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "a sequence of {} tokens exceeds the context of {}", end, info_.max_positions);
    }
    if (slice.views.size() != 1 || slice.views[0].num_blocks * size_t{kBlockTokens} < end) {
      return Errorf(ErrorCode::kInvalidArgument, "a sequence of {} tokens has too few KV blocks",
                    end);
    }
    for (const TokenId token : slice.tokens) {
      if (static_cast<uint32_t>(token) >= info_.vocab_size) {
        return Errorf(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                      static_cast<uint32_t>(token), info_.vocab_size);
      }
    }
    return {};
  }

  Status CheckLayers(const Slice& slice, bool is_last) const {
    if (!slice.is_chunk && slice.first_layer == 0) return {};
    if (!slice.is_chunk || !is_last || slice.query_only || slice.first_layer >= info_.num_layers ||
        slice.tokens.size() > info_.max_carried_tokens) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "a slice of {} tokens cannot begin with layer {} of {}, or be left between "
                    "layers: only a chunk of {} at most that is the last slice can",
                    slice.tokens.size(), slice.first_layer, info_.num_layers,
                    info_.max_carried_tokens);
    }
    if (slice.first_layer > 0 && !forward_->CanGoOn(ForwardSliceOf(slice, nullptr))) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "no step before left {} tokens from {} on before layer {}", slice.tokens.size(),
                    slice.first_position, slice.first_layer);
    }
    return {};
  }

  // A group must be what it says: the same blocks, all of them behind every member's new tokens.
  Status CheckShared(const StepPlan& plan) {
    grouped_.assign(plan.slices.size(), 0);
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      grouped_[i] = plan.slices[i].is_chunk ? 1 : 0;
    }
    for (const SharedPrefix& group : plan.shared) {
      const std::byte* const* blocks = nullptr;
      const uint32_t num_blocks = group.num_chunks * kChunkBlocks;
      for (const uint32_t index : group.slices) {
        if (index >= grouped_.size() || grouped_[index] != 0) {
          return Errorf(ErrorCode::kInvalidArgument,
                        "slice {} of {} is in a shared group twice, or does not exist or is a "
                        "chunk",
                        index, grouped_.size());
        }
        grouped_[index] = 1;
        const Slice& slice = plan.slices[index];
        if (slice.first_position / kChunkTokens < group.num_chunks ||
            (blocks != nullptr &&
             !std::equal(blocks, blocks + num_blocks, slice.views[0].blocks))) {
          return Errorf(ErrorCode::kInvalidArgument,
                        "slice {} does not share its first {} chunks with its group", index,
                        group.num_chunks);
        }
        blocks = slice.views[0].blocks;
      }
    }
    return {};
  }

  // Doubles, as batches grow row by row. What is not written costs no memory.
  Status ReserveLogits(size_t num_rows) {
    const size_t row_bytes = forward_->logits_stride() * sizeof(float);
    if (num_rows * row_bytes <= logits_.bytes()) return {};
    const size_t max_rows = std::max<size_t>(num_rows, info_.max_step_tokens);
    logits_ = {};
    KVERN_ASSIGN_OR_RETURN(
        logits_, AlignedBuffer::Create(std::min(std::bit_ceil(num_rows), max_rows) * row_bytes));
    return {};
  }

  // All but the sampled tokens, for which there is room.
  void BeginOutput(const Slice& slice, const model::ForwardOutcome& outcome, uint32_t index) {
    SliceOutput& output = outputs_[index];
    output.status = {};
    output.stored_differs = outcome.stored_differs;
    output.next_layer = outcome.next_layer;
    output.logits.clear();
    const uint32_t num_logits = outcome.next_layer == info_.num_layers ? slice.num_logits : 0;
    for (uint32_t n = 0; n < num_logits; ++n, logits_row_ += forward_->logits_stride()) {
      output.logits.emplace_back(logits_row_, info_.vocab_size);
    }
    const bool samples = num_logits > 0 && slice.sample != nullptr && !outcome.non_finite;
    ResizeTokens(output.tokens, samples ? num_logits : 0);
    if (samples) to_sample_.push_back({index, 0});
    if (outcome.non_finite) {
      output.status = Errorf(ErrorCode::kNonFinite,
                             "the computation met a value that is not finite between tokens {} "
                             "and {}: the weights or the model's metadata are damaged",
                             slice.first_position, slice.first_position + slice.tokens.size());
    }
  }

  // Keeps the memory of tokens that go, for those that come.
  void ResizeTokens(std::vector<SampledToken>& tokens, size_t size) {
    for (; tokens.size() > size; tokens.pop_back()) {
      spare_tokens_.push_back(std::move(tokens.back()));
    }
    while (tokens.size() < size) {
      if (spare_tokens_.empty()) spare_tokens_.emplace_back();
      tokens.push_back(std::move(spare_tokens_.back()));
      spare_tokens_.pop_back();
    }
  }

  // Slices differ in cost, so threads take one after the other.
  void SampleAll(const StepPlan& plan) {
    next_sample_.store(0, std::memory_order_relaxed);
    const auto job = [this, &plan](size_t thread) {
      while (true) {
        const size_t i = next_sample_.fetch_add(1, std::memory_order_relaxed);
        if (i >= to_sample_.size()) return;
        SampleSlice(plan, samplers_[thread], to_sample_[i]);
      }
    };
    if (to_sample_.size() > 1) {
      team_.Run(job);
    } else {
      job(0);
    }
    for (const SampleTask& task : to_sample_) {
      ResizeTokens(outputs_[task.slice].tokens, task.num_tokens);
    }
  }

  // After each wanted token in turn, until one is not what the slice goes on with.
  void SampleSlice(const StepPlan& plan, compute::Sampler& sampler, SampleTask& task) {
    const Slice& slice = plan.slices[task.slice];
    SliceOutput& output = outputs_[task.slice];
    const SampleRequest& request = *slice.sample;
    const size_t first = slice.tokens.size() - slice.num_logits;
    for (size_t i = 0; i < slice.num_logits; ++i) {
      const size_t num_later = slice.num_logits - 1 - i;
      const auto position = static_cast<uint32_t>(slice.first_position + first + i + 1);
      SampledToken& token = output.tokens[i];
      output.status = sampler.Sample(
          output.logits[i], *request.params,
          {request.history.first(request.history.size() - num_later), request.num_prompt_tokens},
          {.completion_index = request.completion_index, .position = position}, token);
      if (!output.status.ok()) return;
      ++task.num_tokens;
      if (num_later > 0 && token.id != slice.tokens[first + i + 1]) return;
    }
  }

  ThreadTeam& team_;
  const std::unique_ptr<model::Forward> forward_;
  ExecutorInfo info_;
  std::vector<compute::Sampler> samplers_;  // by thread
  AlignedBuffer logits_;
  float* logits_row_ = nullptr;  // of the next slice
  std::vector<model::ForwardSlice> slices_;
  std::vector<model::SharedChunks> shared_;
  std::vector<uint8_t> grouped_;      // by slice
  std::vector<SliceOutput> outputs_;  // of this step, and behind them those of larger ones
  std::vector<SampleTask> to_sample_;
  std::atomic<size_t> next_sample_{0};  // in to_sample_
  std::vector<SampledToken> spare_tokens_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeCpuExecutor(const model::Model* model,
                                                  const compute::Isa* isa, ThreadTeam* team,
                                                  const compute::KvLayout& layout,
                                                  uint32_t max_step_tokens) {
  KVERN_ASSIGN_OR_RETURN(auto forward,
                         model::Forward::Create(model, isa, team, layout, max_step_tokens));
  ExecutorInfo info = {.vocab_size = model->config().vocab_size,
                       .max_positions = model->max_positions(),
                       .max_step_tokens = max_step_tokens,
                       .groups = {MakeGroupSpec(layout)},
                       .weight_bytes = model->weights().bytes(),
                       .scratch_bytes = forward->scratch_bytes(),
                       .num_layers = model->config().num_layers,
                       .max_carried_tokens = model::kMaxCarriedTokens};
  return std::unique_ptr<Executor>(
      std::make_unique<CpuExecutor>(isa, team, std::move(forward), std::move(info)));
}

compute::KvLayout MakeKvLayout(const model::ModelConfig& config, compute::KvDtype k_dtype,
                               compute::KvDtype v_dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .k_dtype = k_dtype,
          .v_dtype = v_dtype};
}

kv::GroupSpec MakeGroupSpec(const compute::KvLayout& layout) {
  return {.block_bytes = layout.block_bytes(),
          .row_independent = GetKvDtype(layout.k_dtype).row_independent &&
                             GetKvDtype(layout.v_dtype).row_independent};
}

kv::CopyRowsFunction MakeCopyRows(const compute::KvLayout& layout) {
  return [layout](kv::GroupId, std::byte* to, const std::byte* from, uint32_t num_tokens) {
    layout.CopyRows(to, from, num_tokens);
  };
}

}  // namespace kvern::engine
