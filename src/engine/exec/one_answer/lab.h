// Lab: opened models of each kind that the grid needs, and what stands between them and a core: a
// clock that only steps move, and an executor that records the logits that it passes on.
//
// Models stay open, as loading takes longer than most runs. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "base/result.h"
#include "engine/exec/one_answer/answer.h"
#include "engine/exec/open.h"
#include "engine/executor.h"
#include "kv/block_store.h"
#include "kvern/kv.h"

namespace kvern::engine::one_answer {

inline constexpr uint32_t kContext = 4096;
inline constexpr uint32_t kMaxStepTokens = 2048;

// What an opened model depends on.
struct ModelKey {
  std::string k_dtype = "f16", v_dtype = "f16";
  std::string isa = "auto";
  size_t num_threads = 2;

  auto operator<=>(const ModelKey&) const = default;  // NOLINT: clang-tidy's mistake
};

// Moves only when told, so that a run makes the same decisions each time.
class StepClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_; }
  void Advance(int64_t us) { now_us_ += us; }

 private:
  int64_t now_us_ = 1'000'000;
};

// Passes plans on, takes the time on the clock that a machine might take, and records a hash of
// each row of logits that a token was sampled from.
class RecordingExecutor final : public Executor {
 public:
  // Both must outlive it.
  RecordingExecutor(Executor* inner, StepClock* clock) : inner_(*inner), clock_(*clock) {}

  const ExecutorInfo& info() const override { return inner_.info(); }
  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override;

  const LogitHashes& logits() const { return logits_; }
  // Rows that were computed twice and were not the same.
  size_t num_conflicts() const { return num_conflicts_; }
  // Chunks that were left between two layers.
  size_t num_left() const { return num_left_; }

  // Called with each plan before and after it is computed, to look at blocks or to damage them.
  std::function<void(const StepPlan&plan)> before, after;

 private:
  Executor& inner_;
  StepClock& clock_;
  LogitHashes logits_;
  size_t num_conflicts_ = 0, num_left_ = 0;
};

// A KV cache of its own for each run.
struct TestCache {
  std::unique_ptr<kv::HostBlockStore> store;
  std::unique_ptr<kv::KvCache> cache;
};

class Lab {
 public:
  // `twin_path` is where a copy of the model with random weights may be written.
  Lab(std::string model_path, std::string twin_path)
      : model_path_(std::move(model_path)), twin_path_(std::move(twin_path)) {}

  const std::string& model_path() const { return model_path_; }
  // Errors: those of opening, and of writing the file.
  Result<OpenedModel*> Open(const ModelKey& key);
  Result<std::string> RandomTwin();
  // The twin, computing on the threads of the model that it drafts for.
  Result<OpenedModel*> OpenTwin(const ModelKey& key);

  static Result<TestCache> MakeCache(const OpenedModel& model, size_t num_blocks,
                                     const std::string& eviction);

 private:
  const std::string model_path_, twin_path_;
  bool has_twin_ = false;
  std::map<ModelKey, std::unique_ptr<OpenedModel>> models_;
  std::map<ModelKey, std::unique_ptr<OpenedModel>> twins_;  // after those whose threads they use
};

}  // namespace kvern::engine::one_answer
