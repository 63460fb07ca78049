// Simulation: the production core, scheduler and KV library on a fake model and clock, with clients
// that come and go as operations say.
//
// Whatever is wrong is printed to stderr, and the process aborts. After every operation: answers
// are those of the fake model alone; plans and memory obey their rules; somebody makes progress,
// or there is a reason; what nobody needs is held by nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/core.h"
#include "engine/model_check/client.h"
#include "engine/model_check/fake_clock.h"
#include "engine/model_check/fake_executor.h"
#include "engine/model_check/fake_model.h"
#include "engine/model_check/fake_proposer.h"
#include "engine/model_check/operation.h"
#include "engine/model_check/setup.h"
#include "kv/model_check/content.h"
#include "kv/tier/memory.h"
#include "kvern/kv.h"

namespace kvern::engine::model_check {

// What is broken on purpose, to see that it is noticed.
enum class Mutation {
  kNone,
  kFlipsBit,         // of a row that a step reads
  kCopiesTooLittle,  // rows that are copied are one too few
  kLeaks,            // a lease that nobody gives back
};

struct SimulationOptions {
  uint64_t full_check_every = 16;  // steps
  Mutation mutation = Mutation::kNone;
  bool is_traced = false;  // prints what each operation did
};

// How often what happened, to see that a run was worth something.
struct SimulationCounts {
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t refused = 0;
  uint64_t cancelled = 0;
  uint64_t deadlines = 0;
  uint64_t failed = 0;
  uint64_t tokens = 0;  // of completions
  uint64_t preemptions = 0;
  uint64_t waits = 0;  // for a prefix
  uint64_t forks = 0;
  uint64_t loads = 0;
  uint64_t pauses = 0;
  uint64_t self_checks = 0;
  uint64_t parts = 0;  // of chunks that took several steps
  uint64_t shared_groups = 0;
  uint64_t drafts = 0;
  uint64_t accepted = 0;

  void Add(const SimulationCounts& other);
};

class Simulation {
 public:
  explicit Simulation(const EngineSetup& setup, const SimulationOptions& options = {});
  ~Simulation();

  void Do(const Operation& operation);
  // Lets everybody end, and checks that nothing is left.
  void Finish();

  // Hash of every decision so far.
  uint64_t trace() const;
  SimulationCounts counts() const;

 private:
  using Text = std::vector<TokenId>;

  void StartCore();
  void Restart();
  bool Step();  // whether it computed something
  void StepOften(const Operation& operation);
  void CheckStalled();
  [[noreturn]] void FailStalled();
  void CheckAfterStep(int64_t begin_us);
  void CheckMemory() const;
  void CheckTotals() const;
  void CheckStats() const;
  void CheckTime();
  void CheckFailure(const Client& client);
  void Count(const Client& client);
  void CheckOrder() const;

  // simulation_requests.cc
  void Submit(Request request, Reading reading);
  void CheckRefusal(const Request& request, const Error& error) const;
  void Burst(const Operation& operation);
  Request MakeRequest(Text prompt, SplitMix64& random) const;
  void SetLimits(Request& request, SplitMix64& random) const;
  Reading MakeReading(SplitMix64& random) const;
  Text MakePrompt(const Operation& operation, SplitMix64& random) const;
  void AddTail(Text& text, size_t num_tokens, SplitMix64& random) const;
  size_t num_blocks_each() const;
  size_t num_room_tokens() const;                        // in all blocks together
  size_t num_room_tokens(const Request& request) const;  // as far as its tenant may have them
  static size_t NumNeeded(const Request& request);
  void SetQuotas(SplitMix64& random);

  void Cancel(const Operation& operation);
  void Read(const Operation& operation);
  void PlanTierFault(const Operation& operation);
  Client* PickLive(uint32_t object) const;
  size_t num_live() const { return live_.size(); }
  void Retire();

  template <typename... Args>
  void Trace(fmt::format_string<Args...> text, Args&&... args) const {
    if (options_.is_traced) PrintTrace(fmt::format(text, std::forward<Args>(args)...));
  }
  static void PrintTrace(const std::string& line);

  const EngineSetup& setup_;
  const SimulationOptions options_;
  FakeModel model_;
  FakeClock clock_;
  EndRules rules_;
  std::unique_ptr<kv::BlockStore> store_;
  std::optional<kv::MemoryTier> tier_;
  std::unique_ptr<kv::KvCache> cache_;
  std::optional<FakeExecutor> executor_;
  std::optional<FakeProposer> proposer_;
  std::unique_ptr<Core> core_;

  std::vector<std::unique_ptr<Client>> live_;
  std::vector<Text> corpus_;  // texts to draw prompts from

  // When a request of one priority had its first turn, or would still have taken it.
  struct Turn {
    int priority;
    int64_t arrival_us;
    int64_t end_us;
    std::optional<int64_t> admitted_us;
    std::optional<int64_t> waited_us;  // when it first waited for another's prefix, or a load
  };
  std::vector<Turn> turns_;
  std::optional<kv::Lease> leaked_;
  SimulationCounts counts_;
  uint64_t num_non_finite_ = 0, num_out_of_memory_ = 0;  // requests that failed so
  // Of this core.
  struct CoreCounts {
    uint64_t requests = 0;
    uint64_t refused = 0;
    uint64_t displaced = 0;  // by more important ones
    uint64_t thrown = 0;     // sinks
    uint64_t finished = 0;
    uint64_t tokens = 0;
    uint64_t preemptions = 0;
    uint64_t self_checks = 0;  // of the executor when it began
    int64_t begin_us = 0;
    int64_t executed_us = 0;  // until the last step
  };
  CoreCounts of_core_;
  uint64_t num_strangers_ = 0;
  std::map<std::string, kv::Quota> quotas_;  // by tenant
  uint64_t num_barren_steps_ = 0;            // in a row, that claim to have computed
  uint64_t trace_ = 0;
};

}  // namespace kvern::engine::model_check
