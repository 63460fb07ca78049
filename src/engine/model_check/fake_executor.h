// FakeExecutor: runs plans on the fake model, and holds the planner to every rule of executor.h.
//
// A plan that breaks a rule, or reads a row that was never written, is a finding: it is printed and
// the process aborts. Each step moves the clock by a cost of its own. Faults are planned before the
// step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "engine/model_check/fake_clock.h"
#include "engine/model_check/fake_model.h"

namespace kvern::engine::model_check {

// What went through the executor so far.
struct ExecutorCounts {
  uint64_t steps = 0;
  uint64_t slices = 0;
  uint64_t tokens = 0;
  uint64_t shared_groups = 0;
  uint64_t query_only = 0;
  uint64_t parts = 0;   // chunks that went through some layers only
  uint64_t drafts = 0;  // tokens of slices behind the first that is sampled
  uint64_t accepted = 0;
  uint64_t failed_slices = 0;
  uint64_t failed_steps = 0;
  uint64_t failed_lone_steps = 0;  // of one slice
};

class FakeExecutor final : public Executor {
 public:
  // `step_tokens` is what the scheduler was told.
  FakeExecutor(const FakeModel* model, ExecutorInfo info, size_t step_tokens, FakeClock* clock);

  const ExecutorInfo& info() const override { return info_; }
  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override;

  // Of the next step: one slice (modulo their number) meets NaN; nothing can be computed at all;
  // a bit of a row that it reads is wrong, and stays so.
  void FailSlice(size_t index) { failing_slice_ = index; }
  void FailStep() { is_failing_ = true; }
  void FlipBit(uint64_t random) { flip_ = random; }

  const ExecutorCounts& counts() const { return counts_; }
  // Hash of all plans so far, block addresses apart.
  uint64_t trace() const { return trace_; }

 private:
  // The last chunk, if it was left between two layers.
  struct Carried {
    const std::byte* block;
    uint32_t first_position;
    uint64_t tokens_hash;
    uint32_t next_layer;

    bool operator==(const Carried&) const = default;
  };

  void CheckSlice(const Slice& slice) const;
  void CheckChunk(const StepPlan& plan) const;
  Carried CarriedOf(const Slice& chunk, uint32_t next_layer) const;
  void RunChunk(const StepPlan& plan, SliceOutput& output);
  void CheckBlocks(const StepPlan& plan);
  void CheckShared(const StepPlan& plan) const;
  void Trace(const StepPlan& plan);
  void FlipBitOf(const StepPlan& plan);
  void Run(const Slice& slice, SliceOutput& output);
  void SampleAt(const Slice& slice, size_t index, uint64_t context, SliceOutput& output);
  void Fail(const Slice& slice, SliceOutput& output);
  static void Void(const Slice& slice);

  const FakeModel& model_;
  const ExecutorInfo info_;
  const size_t step_tokens_;
  FakeClock& clock_;
  std::vector<float> logits_;
  std::vector<SliceOutput> outputs_;
  std::unordered_map<const std::byte*, size_t> writers_;  // slice, by block
  std::optional<Carried> carried_;
  std::optional<size_t> failing_slice_;
  bool is_failing_ = false;
  std::optional<uint64_t> flip_;
  ExecutorCounts counts_;
  uint64_t trace_ = 0;
};

}  // namespace kvern::engine::model_check
