// One eviction and one use among a million candidates, for each policy.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kv/policy.h"

namespace kvern {
void RegisterBenchmarks();  // called by tests/bench/bench_main.cc
}  // namespace kvern

namespace kvern::kv {
namespace {

constexpr uint32_t kNumCandidates = 1'000'000;
constexpr size_t kNumSamples = 4096;  // few enough to stay in cache: the policies are measured
constexpr uint64_t kSeed = 1;

// Half was never used again, the rest up to 19 times. Bytes and cost vary by 64.
EvictionCandidate RandomText(SplitMix64& random) {
  const auto num_uses = static_cast<uint32_t>(random.Below(2) * random.Below(20));
  return {.bytes = (1 + random.Below(64)) << 18,
          .recompute_cost = static_cast<double>(1 + random.Below(64)),
          .num_uses = num_uses};
}

struct Fixture {
  explicit Fixture(const PolicyRow& row) : policy(row.make()), keys(kNumCandidates) {
    for (size_t i = 0; i < kNumSamples; ++i) samples.push_back(RandomText(random));
    for (uint32_t item = 0; item < kNumCandidates; ++item) AddNew(item);
    // One turnover with as many uses, so that no queue, heap or age is as at the start.
    for (uint32_t i = 0; i < kNumCandidates; ++i) {
      EvictAndAdd();
      Use();
    }
  }

  void AddNew(uint32_t item) {
    keys[item] = random.Next();
    Add(item);
  }

  void Add(uint32_t item) {
    EvictionCandidate text = samples[keys[item] % kNumSamples];
    text.item = item;
    text.key = keys[item];
    text.last_used_us = now_us++;
    policy->Add(text);
  }

  // A new text in place of the victim.
  void EvictAndAdd() {
    const uint32_t item = *policy->Victim();
    policy->Evict(item);
    AddNew(item);
  }

  void Use() {
    const auto item = static_cast<uint32_t>(random.Below(kNumCandidates));
    policy->Remove(item);
    Add(item);
  }

  std::unique_ptr<EvictionPolicy> policy;
  std::vector<uint64_t> keys;  // by item
  std::vector<EvictionCandidate> samples;
  SplitMix64 random{kSeed};
  int64_t now_us = 0;
};

void Run(benchmark::State& state, const PolicyRow& row, void (Fixture::*operation)()) {
  Fixture fixture(row);
  for (auto _ : state) (fixture.*operation)();
}

}  // namespace
}  // namespace kvern::kv

void kvern::RegisterBenchmarks() {
  using kv::Fixture;
  for (const auto& row : kv::Policies()) {
    benchmark::RegisterBenchmark(
        fmt::format("evict_and_add/{}", row.name).c_str(),
        [&row](benchmark::State& state) { Run(state, row, &Fixture::EvictAndAdd); })
        ->Iterations(1'000'000);
    benchmark::RegisterBenchmark(
        fmt::format("use/{}", row.name).c_str(),
        [&row](benchmark::State& state) { Run(state, row, &Fixture::Use); })
        ->Iterations(1'000'000);
  }
}
