// For tests: an engine whose model is a hash, so that its answers are known without one.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/service.h"
#include "kvern/kv_store.h"

namespace kvern::engine::hash_model {

inline constexpr uint32_t kVocabSize = 500;
inline constexpr uint32_t kContext = 256;
inline constexpr uint32_t kEndToken = kVocabSize - 1;  // never said

// The next token is a hash of what came before, seed and completion.
inline SampledToken NextToken(std::span<const TokenId> history, uint64_t seed,
                              uint32_t completion) {
  uint64_t hash = seed * 31 + completion;
  for (const TokenId token : history) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return {TokenId(hash % kEndToken), -static_cast<float>(hash % 1000) / 100, {}};
}

class HashExecutor final : public Executor {
 public:
  const ExecutorInfo& info() const override { return info_; }

  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_held_; });
    std::this_thread::sleep_for(delay_);
    if (is_failing_) return Errorf(ErrorCode::kIo, "the machine is on fire");
    outputs_.clear();
    for (const Slice& slice : plan.slices) {
      SliceOutput& output = outputs_.emplace_back();
      if (slice.sample == nullptr) continue;
      const SampleRequest& sample = *slice.sample;
      output.tokens.push_back(
          NextToken(sample.history, sample.params->seed, sample.completion_index));
    }
    return std::span<const SliceOutput>(outputs_);
  }

  // The next step does not end before Hold(false).
  void Hold(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }
  void SetDelay(std::chrono::milliseconds delay) {  // of every step
    const std::lock_guard lock(mutex_);
    delay_ = delay;
  }
  void Fail() {
    const std::lock_guard lock(mutex_);
    is_failing_ = true;
  }

 private:
  const ExecutorInfo info_ = {.vocab_size = kVocabSize,
                              .max_positions = kContext,
                              .max_step_tokens = 64,
                              .groups = {{.block_bytes = 128}},
                              .weight_bytes = 0,
                              .scratch_bytes = 0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  bool is_failing_ = false;
  std::chrono::milliseconds delay_{0};
  std::vector<SliceOutput> outputs_;
};

// What an engine runs on.
struct Machine {
  HashExecutor executor;
  SteadyClock clock;
  std::unique_ptr<kv::BlockStore> store =
      kv::MakeHostStore([](auto, std::byte* to, const std::byte* from, uint32_t num_tokens) {
        std::copy_n(from, num_tokens * 8, to);
      });
  std::unique_ptr<kv::KvCache> cache = *kv::KvCache::Make(
      {.groups = {{.block_bytes = 128}}, .budget_bytes = 400 * 128}, store.get());
};

inline std::unique_ptr<Engine> MakeEngine(std::shared_ptr<Machine> machine,
                                          const SchedulerOptions& scheduler) {
  EngineParts parts = {
      .core = {.executor = &machine->executor,
               .cache = machine->cache.get(),
               .clock = &machine->clock,
               .ns = {.numerics_version = 3,
                      .fingerprint = {{.name = "weights", .value = std::string("none")}}},
               .end_tokens = {TokenId{kEndToken}}},
      .owner = machine,
      .model_name = "hash",
      .check_sampling = [](const SamplingParams& params) -> Status {
        if (params.temperature >= 0) return {};
        return Errorf(ErrorCode::kInvalidArgument, "temperature: is negative");
      }};
  return std::move(EngineAccess::Make(std::move(parts), scheduler, {}).value());
}

}  // namespace kvern::engine::hash_model
