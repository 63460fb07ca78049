// CoreRun: one core with a cache of its own, driven step by step, so that requests arrive, are read
// and are cancelled at exact steps.
//
// Not thread-safe. The lab must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/core.h"
#include "engine/exec/one_answer/answer.h"
#include "engine/exec/one_answer/lab.h"
#include "engine/exec/one_answer/requests.h"

namespace kvern::engine::one_answer {

enum class Draft { kNone, kNgram, kSelf, kRandom };

// What a run is served by.
struct CoreSetup {
  ModelKey model = {};
  SchedulerOptions scheduler = {};
  Draft draft = Draft::kNone;
  bool adaptive = true;
  size_t max_draft = 8;
  std::string eviction = "lru";
  size_t num_blocks = 4096;
};

// A request of a run. Steps count from the start of Answer().
struct Submission {
  const Case* asked;
  uint64_t at_step = 0;
  std::optional<uint64_t> cancel_at_step = {};
  uint64_t room_every = 1;  // its reader takes a chunk in one of so many steps
};

class CoreRun {
 public:
  static Result<std::unique_ptr<CoreRun>> Make(Lab* lab, const CoreSetup& setup);

  // Runs until all are answered, in the order of `submissions`. May be called again, with what the
  // cache has by then. Errors: a request was refused or failed, or nothing moves any more.
  Result<std::vector<RequestAnswer>> Answer(const std::vector<Submission>& submissions);

  // Of all calls so far.
  const LogitHashes& logits() const { return executor_.logits(); }
  EngineStats stats() const { return core_->stats(); }
  size_t num_left() const { return executor_.num_left(); }
  RecordingExecutor& executor() { return executor_; }
  const OpenedModel& model() const { return model_; }

  // What must hold in every run whatever came of it, once nothing is live; what does not, or none.
  std::optional<std::string> FindViolation() const;

 private:
  explicit CoreRun(OpenedModel* model) : model_(*model), executor_(&model->executor(), &clock_) {}
  Status MakeProposer(Lab* lab, const CoreSetup& setup, SpeculationOptions& options);
  Status Step(const std::vector<Submission>& submissions);

  OpenedModel& model_;
  StepClock clock_;
  RecordingExecutor executor_;
  TestCache cache_;
  // A draft model computes on an executor that keeps the time, and in a cache of its own.
  std::unique_ptr<RecordingExecutor> draft_executor_;
  TestCache draft_cache_;
  std::unique_ptr<Proposer> proposer_;
  std::vector<std::unique_ptr<AnswerSink>> sinks_;  // of Answer()
  std::unique_ptr<Core> core_;

  // Of Answer().
  std::vector<std::optional<RequestId>> ids_;
  uint64_t step_ = 0;
  uint64_t num_idle_steps_ = 0;
};

}  // namespace kvern::engine::one_answer
