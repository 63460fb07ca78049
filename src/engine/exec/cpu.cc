#include "engine/exec/cpu.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/sampling.h"
#include "model/forward.h"

namespace kvern::engine {
namespace {

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const compute::Isa* isa, std::unique_ptr<model::Forward> forward, ExecutorInfo info)
      : isa_(*isa), forward_(std::move(forward)), info_(std::move(info)) {}

  const ExecutorInfo& info() const override { return info_; }

  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    KVERN_RETURN_IF_ERROR(CheckLimits(plan));
    size_t num_rows = 0;
    for (const Slice& slice : plan.slices) num_rows += slice.num_logits;
    KVERN_RETURN_IF_ERROR(ReserveLogits(num_rows));

    slices_.clear();
    for (const Slice& slice : plan.slices) {
      slices_.push_back({slice.tokens, slice.first_position, slice.views[0], slice.num_logits});
    }
    shared_.clear();
    for (const SharedPrefix& group : plan.shared) {
      shared_.push_back({group.slices, group.num_chunks});
    }
    const std::span<float> logits(logits_.as<float>(), num_rows * forward_->logits_stride());
    const std::vector<bool> failed = forward_->Run({slices_, shared_}, logits);
    Collect(plan, failed);
    return std::span<const SliceOutput>(outputs_);
  }

 private:
  Status CheckLimits(const StepPlan& plan) const {
    size_t num_tokens = 0;
    for (const Slice& slice : plan.slices) {
      KVERN_RETURN_IF_ERROR(CheckSlice(slice));
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
    if (slice.query_only) {
      return Errorf(ErrorCode::kUnsupported, "this executor computes no token without storing it");
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

  // A group must be what it says: the same blocks, all of them behind every member's new tokens.
  static Status CheckShared(const StepPlan& plan) {
    std::vector<bool> grouped(plan.slices.size());
    for (const SharedPrefix& group : plan.shared) {
      const std::byte* const* blocks = nullptr;
      const uint32_t num_blocks = group.num_chunks * kChunkBlocks;
      for (const uint32_t index : group.slices) {
        if (index >= grouped.size() || grouped[index]) {
          return Errorf(ErrorCode::kInvalidArgument,
                        "slice {} of {} is in a shared group twice or does not exist", index,
                        grouped.size());
        }
        grouped[index] = true;
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

  // Grows only: most steps want as many rows as the one before.
  Status ReserveLogits(size_t num_rows) {
    const size_t bytes = num_rows * forward_->logits_stride() * sizeof(float);
    if (bytes <= logits_.bytes()) return {};
    KVERN_ASSIGN_OR_RETURN(logits_, AlignedBuffer::Create(bytes));
    return {};
  }

  void Collect(const StepPlan& plan, const std::vector<bool>& failed) {
    outputs_.clear();
    const float* row = logits_.as<float>();
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      const Slice& slice = plan.slices[i];
      SliceOutput output;
      for (uint32_t n = 0; n < slice.num_logits; ++n, row += forward_->logits_stride()) {
        output.logits.emplace_back(row, info_.vocab_size);
      }
      if (failed[i]) {
        output.status = Errorf(ErrorCode::kNonFinite,
                               "the computation met a value that is not finite between tokens {} "
                               "and {}: the weights or the model's metadata are damaged",
                               slice.first_position, slice.first_position + slice.tokens.size());
      } else if (slice.sample != nullptr) {
        SampleInto(slice, output);
      }
      outputs_.push_back(std::move(output));
    }
  }

  // After each wanted token in turn, until one is not what the slice goes on with.
  void SampleInto(const Slice& slice, SliceOutput& output) const {
    const SampleRequest& request = *slice.sample;
    const size_t first = slice.tokens.size() - slice.num_logits;
    for (size_t i = 0; i < slice.num_logits; ++i) {
      const size_t num_later = slice.num_logits - 1 - i;
      const auto position = static_cast<uint32_t>(slice.first_position + first + i + 1);
      auto token = compute::Sample(
          *isa_.rows, output.logits[i], *request.params,
          {request.history.first(request.history.size() - num_later), request.num_prompt_tokens},
          {.completion_index = request.completion_index, .position = position});
      if (!token.ok()) {
        output.status = token.error();
        return;
      }
      output.tokens.push_back(std::move(*token));
      if (num_later > 0 && output.tokens.back().id != slice.tokens[first + i + 1]) return;
    }
  }

  const compute::Isa& isa_;
  const std::unique_ptr<model::Forward> forward_;
  const ExecutorInfo info_;
  AlignedBuffer logits_;
  std::vector<model::ForwardSlice> slices_;
  std::vector<model::SharedChunks> shared_;
  std::vector<SliceOutput> outputs_;
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
                       .scratch_bytes = forward->scratch_bytes()};
  return std::unique_ptr<Executor>(
      std::make_unique<CpuExecutor>(isa, std::move(forward), std::move(info)));
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
