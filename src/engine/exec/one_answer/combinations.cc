#include "engine/exec/one_answer/combinations.h"

#include <fmt/core.h>

#include "compute/isa.h"
#include "engine/policy.h"
#include "kv/policy.h"

namespace kvern::engine::one_answer {
namespace {

// The longest request of CI, so that each combination takes some seconds.
constexpr size_t kShort = 320;
// Scalar code is slow.
constexpr size_t kShortest = 40;
// Blocks in which a request of kShort tokens and not much beside it finds room.
constexpr size_t kFewBlocks = 40;
// Time between tokens that leaves a prefill a part of each step, on the clock of the lab.
constexpr int64_t kTargetUs = 60'000;

CoreSetup Steps(size_t step_tokens) {
  CoreSetup setup;
  setup.scheduler.step_tokens = step_tokens;
  return setup;
}

CoreSetup FewBlocks(const char* policy, const char* eviction, size_t step_tokens) {
  CoreSetup setup = Steps(step_tokens);
  setup.scheduler.policy = policy;
  setup.scheduler.watermark = 0;
  setup.eviction = eviction;
  setup.num_blocks = kFewBlocks;
  return setup;
}

// Requests whose answers are long, all at once and some times each, in so few blocks that they get
// in each other's way.
Combination Preempting(std::string name, CoreSetup setup) {
  return {.name = std::move(name),
          .setup = std::move(setup),
          .arrival = Arrival::kTogether,
          .min_new_tokens = 60,
          .max_case_tokens = kShort,
          .num_copies = 8,
          .min_preemptions = 12};
}

std::vector<Combination> CiCombinations() {
  std::vector<Combination> rows(8);
  rows[0] = {.name = "together, cold and warm, 2 threads, steps of 512",
             .setup = Steps(512),
             .cache = CacheMode::kWarm,
             .arrival = Arrival::kTogether};
  rows[1] = {.name = "no cache, 1 thread, avx2, steps of 16",
             .setup = Steps(16),
             .cache = CacheMode::kOff};
  rows[1].setup.model.num_threads = 1;
  rows[1].setup.model.isa = compute::SelectIsa("avx2").ok() ? "avx2" : "auto";
  rows[2] = Preempting("preemption, lfu, priority, q8r", FewBlocks("priority", "lfu", 512));
  rows[2].setup.model.k_dtype = rows[2].setup.model.v_dtype = "q8r";
  rows[3] = Preempting("preemption, drafts by ngram, s3fifo, lpm, steps of 2048",
                       FewBlocks("lpm", "s3fifo", 2048));
  rows[3].setup.draft = Draft::kNgram;
  rows[4] = {.name = "its own draft, adaptive target", .setup = Steps(512)};
  rows[4].setup.draft = Draft::kSelf;
  rows[4].setup.adaptive = false;
  rows[4].setup.max_draft = 4;
  rows[4].setup.scheduler.target_token_us = kTargetUs;
  rows[5] = {.name = "a random draft", .setup = Steps(512)};
  rows[5].setup.draft = Draft::kRandom;
  rows[5].setup.adaptive = false;
  rows[5].setup.max_draft = 1;
  rows[5].setup.eviction = "cost";
  rows[6] = {.name = "the public engine, ngram, warm, steps of 64",
             .setup = Steps(64),
             .cache = CacheMode::kWarm,
             .arrival = Arrival::kThreads};
  rows[6].setup.draft = Draft::kNgram;
  rows[7] = {.name = "scalar, K q8r, V bf16, in turn",
             .setup = Steps(512),
             .arrival = Arrival::kInTurn,
             .max_case_tokens = kShortest};
  rows[7].setup.model = {.k_dtype = "q8r", .v_dtype = "bf16", .isa = "scalar"};
  for (Combination& row : rows) row.max_case_tokens = std::min(row.max_case_tokens, kShort);
  return rows;
}

void AddSteps(std::vector<Combination>& rows) {
  constexpr std::pair<CacheMode, const char*> kModes[] = {
      {CacheMode::kOff, "no cache"}, {CacheMode::kCold, "cold"}, {CacheMode::kWarm, "warm"}};
  for (const auto& [mode, mode_name] : kModes) {
    for (const size_t step_tokens : {16, 64, 512, 2048}) {
      rows.push_back({.name = fmt::format("steps of {}, {}", step_tokens, mode_name),
                      .setup = Steps(step_tokens),
                      .cache = mode});
    }
    rows.push_back({.name = fmt::format("adaptive target, {}", mode_name),
                    .setup = Steps(512),
                    .cache = mode});
    rows.back().setup.scheduler.target_token_us = kTargetUs;
    rows.push_back({.name = fmt::format("together, {}", mode_name),
                    .setup = Steps(512),
                    .cache = mode,
                    .arrival = Arrival::kTogether});
  }
  rows.push_back({.name = "in turn, warm",
                  .setup = Steps(512),
                  .cache = CacheMode::kWarm,
                  .arrival = Arrival::kInTurn});
}

void AddPreemption(std::vector<Combination>& rows) {
  for (const SchedulingPolicy* policy : SchedulingPolicies()) {
    for (const kv::PolicyRow& eviction : kv::Policies()) {
      const std::string policy_name(policy->name), eviction_name(eviction.name);
      rows.push_back(Preempting(fmt::format("preemption, {}, {}", policy_name, eviction_name),
                                FewBlocks(policy_name.c_str(), eviction_name.c_str(), 512)));
      rows.back().cache = CacheMode::kWarm;
    }
  }
  rows.push_back(Preempting("preemption, no cache", FewBlocks("fcfs", "lru", 64)));
  rows.back().cache = CacheMode::kOff;
}

void AddSpeculation(std::vector<Combination>& rows) {
  constexpr std::pair<Draft, const char*> kDrafts[] = {{Draft::kNgram, "ngram"},
                                                       {Draft::kSelf, "its own draft"},
                                                       {Draft::kRandom, "a random draft"}};
  for (const auto& [draft, draft_name] : kDrafts) {
    for (const bool adaptive : {true, false}) {
      const char* const adaptive_name = adaptive ? ", adaptive" : "";
      for (const size_t step_tokens : {16, 512}) {
        rows.push_back(
            {.name = fmt::format("{}{}, steps of {}", draft_name, adaptive_name, step_tokens),
             .setup = Steps(step_tokens),
             .max_case_tokens = kShort});
        rows.back().setup.draft = draft;
        rows.back().setup.adaptive = adaptive;
      }
      rows.push_back(Preempting(fmt::format("{}{}, preemption", draft_name, adaptive_name),
                                FewBlocks("fcfs", "lru", 512)));
      rows.back().num_copies = 12;  // drafts end in few steps
      rows.back().setup.draft = draft;
      rows.back().setup.adaptive = adaptive;
    }
    rows.push_back({.name = fmt::format("the public engine, {}", draft_name),
                    .setup = Steps(512),
                    .cache = CacheMode::kWarm,
                    .arrival = Arrival::kThreads,
                    .max_case_tokens = kShort});
    rows.back().setup.draft = draft;
  }
}

void AddMachines(std::vector<Combination>& rows) {
  for (const compute::Isa& isa : compute::Isas()) {
    if (!isa.supported()) continue;
    for (const size_t num_threads : {1, 2}) {
      rows.push_back({.name = fmt::format("{}, {} threads", isa.name, num_threads),
                      .setup = Steps(512),
                      .max_case_tokens = isa.name == "scalar" ? kShortest : kShort});
      rows.back().setup.model.isa = isa.name;
      rows.back().setup.model.num_threads = num_threads;
    }
  }
  for (const CacheMode mode : {CacheMode::kOff, CacheMode::kWarm}) {
    rows.push_back({.name = fmt::format("the public engine, {}",
                                        mode == CacheMode::kOff ? "no cache" : "warm"),
                    .setup = Steps(512),
                    .cache = mode,
                    .arrival = Arrival::kThreads});
  }
}

void AddTypes(std::vector<Combination>& rows, const char* k, const char* v) {
  rows.push_back({.name = fmt::format("K {}, V {}", k, v),
                  .setup = Steps(64),
                  .cache = CacheMode::kWarm,
                  .max_case_tokens = kShort});
  rows.back().setup.model = {.k_dtype = k, .v_dtype = v};
}

}  // namespace

std::vector<Combination> Combinations(Suite suite) {
  if (suite == Suite::kCi) return CiCombinations();
  std::vector<Combination> rows;
  AddSteps(rows);
  AddPreemption(rows);
  AddSpeculation(rows);
  AddMachines(rows);
  // The same with K and V in 8 bits.
  const size_t num_rows = rows.size();
  for (size_t i = 0; i < num_rows; ++i) {
    if (rows[i].setup.model.k_dtype != "f16") continue;
    rows.push_back(rows[i]);
    rows.back().name += ", q8r";
    rows.back().setup.model.k_dtype = rows.back().setup.model.v_dtype = "q8r";
  }
  for (const char* dtype : {"f32", "bf16", "q4r"}) AddTypes(rows, dtype, dtype);
  constexpr std::pair<const char*, const char*> kMixed[] = {
      {"f16", "f32"}, {"bf16", "f16"}, {"q8r", "f16"}, {"f32", "q8r"}};
  for (const auto& [k, v] : kMixed) AddTypes(rows, k, v);
  return rows;
}

}  // namespace kvern::engine::one_answer
