#include "sim/fragmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"

namespace kvern::sim {
namespace {

constexpr size_t kTokenBytes = 4, kBlockBytes = kTokenBytes * kBlockTokens;

LengthTrace Requests(const std::vector<std::pair<uint32_t, uint32_t>>& lengths) {
  LengthTrace trace;
  for (const auto& [context, generated] : lengths) {
    trace.push_back({.context_tokens = context, .generated_tokens = generated});
  }
  return trace;
}

FragmentationOptions Options(size_t num_blocks, const LengthTrace& trace) {
  FragmentationOptions options;
  options.budget_bytes = num_blocks * kBlockBytes;
  options.token_bytes = kTokenBytes;
  options.max_tokens = LongestRequest(trace);
  return options;
}

FragmentationResult Replay(const LengthTrace& trace, std::string_view strategy,
                           const FragmentationOptions& options) {
  return ReplayLengths(trace, *kv::FindStrategy(strategy).value(), options).value();
}

// Two that live long lie between three holes: six blocks are free, but no three of them together.
TEST(Fragmentation, HolesKeepARequestWaitingOnlyWhereItMustBeContiguous) {
  const LengthTrace trace = Requests({{32, 0}, {8, 5}, {32, 0}, {8, 5}, {48, 0}});
  const FragmentationOptions options = Options(8, trace);

  const FragmentationResult dynamic = Replay(trace, "dynamic", options);
  EXPECT_EQ(dynamic.num_completed, 5u);
  EXPECT_EQ(dynamic.num_steps, 7u);
  EXPECT_EQ(dynamic.num_refusals, 6u);
  EXPECT_EQ(dynamic.num_refusals_by_holes, 5u);
  EXPECT_EQ(dynamic.peak_external_bytes, 6 * kBlockBytes);
  EXPECT_DOUBLE_EQ(dynamic.mean_bytes.external, 5.0 * 6 * kBlockBytes / 7);
  // 80 tokens, then 18, 20, ... 26 of the long-lived ones, then 48.
  EXPECT_DOUBLE_EQ(dynamic.mean_bytes.used, (80.0 + 18 + 20 + 22 + 24 + 26 + 48) * kTokenBytes / 7);
  EXPECT_DOUBLE_EQ(dynamic.mean_bytes.Sum(), 8.0 * kBlockBytes);
  EXPECT_DOUBLE_EQ(dynamic.mean_held, (4.0 + 5 * 2 + 1) / 7);

  const FragmentationResult paged = Replay(trace, "paged", options);
  EXPECT_EQ(paged.num_completed, 5u);
  EXPECT_EQ(paged.num_steps, 6u);
  EXPECT_EQ(paged.num_refusals, 1u);
  EXPECT_EQ(paged.num_refusals_by_holes, 0u);
  EXPECT_EQ(paged.mean_bytes.external, 0.0);
  EXPECT_EQ(paged.peak_external_bytes, 0u);
}

TEST(Fragmentation, DynamicCopiesWhenItGrowsAndNeedsBothRegions) {
  const LengthTrace trace = Requests({{32, 17}});  // 2 blocks, 3, 4
  const FragmentationResult result = Replay(trace, "dynamic", Options(9, trace));
  EXPECT_EQ(result.num_completed, 1u);
  EXPECT_EQ(result.bytes_copied, (2 + 3) * kBlockBytes);
  // With 6 blocks, 3 and 4 do not fit together: it starts again, in 4.
  const FragmentationResult restarted = Replay(trace, "dynamic", Options(6, trace));
  EXPECT_EQ(restarted.num_completed, 1u);
  EXPECT_EQ(restarted.num_preemptions, 1u);
  EXPECT_EQ(restarted.tokens_recomputed, 48u);
  EXPECT_EQ(restarted.bytes_copied, 2 * kBlockBytes);
  for (const std::string_view strategy : {"dynamic", "paged", "static"}) {
    EXPECT_EQ(Replay(trace, strategy, Options(4, trace)).num_completed, 1u);
    EXPECT_EQ(Replay(trace, strategy, Options(3, trace)).num_never_fit, 1u);
  }
}

TEST(Fragmentation, WhoIsRefusedWaitsAndTheYoungestIsPreemptedWhenAllAre) {
  const LengthTrace trace = Requests({{16, 16}, {16, 16}});
  const FragmentationResult waits = Replay(trace, "paged", Options(3, trace));
  EXPECT_EQ(waits.num_completed, 2u);
  EXPECT_EQ(waits.num_waits, 16u);  // the younger, for as long as the older grows
  EXPECT_EQ(waits.num_preemptions, 0u);

  const FragmentationResult preempts = Replay(trace, "paged", Options(2, trace));
  EXPECT_EQ(preempts.num_completed, 2u);
  EXPECT_EQ(preempts.num_waits, 2u);
  EXPECT_EQ(preempts.num_preemptions, 1u);
  EXPECT_EQ(preempts.tokens_recomputed, 16u);
  EXPECT_EQ(preempts.num_steps, 34u);
  EXPECT_EQ(preempts.peak_held, 2u);
}

TEST(Fragmentation, LeavesOutWhatIsLongerThanTheContext) {
  const LengthTrace trace = Requests({{10, 5}, {10, 7}, {10, 6}, {0, 0}});
  FragmentationOptions options = Options(4, trace);
  options.max_tokens = 16;
  for (const kv::Strategy& strategy : kv::Strategies()) {
    const FragmentationResult result = ReplayLengths(trace, strategy, options).value();
    EXPECT_EQ(result.num_too_long, 1u);
    EXPECT_EQ(result.num_completed, 3u);
  }
}

TEST(Fragmentation, MeansLeaveOutTheEnd) {
  const LengthTrace trace = Requests({{16, 3}, {16, 3}, {16, 1000}});
  FragmentationOptions options = Options(65, trace);
  options.budget_bytes = 2 * options.max_tokens * kTokenBytes;
  const FragmentationResult result = Replay(trace, "paged", options);
  EXPECT_EQ(result.num_steps, 1001u);
  EXPECT_EQ(result.mean_held, 3);  // one step

  options.max_tokens = 10;
  const FragmentationResult none = Replay(trace, "paged", options);
  EXPECT_EQ(none.num_too_long, 3u);
  EXPECT_EQ(none.num_steps, 0u);
  EXPECT_EQ(none.mean_bytes.free, none.mean_bytes.Sum());
  EXPECT_EQ(none.mean_bytes.free, 127.0 * kBlockBytes);
}

TEST(Fragmentation, RequestsArriveInTimeWhenStepsHaveALength) {
  LengthTrace trace = Requests({{16, 2}, {16, 2}});
  trace[1].arrival_ms = 1'000'000'000'000;
  FragmentationOptions options = Options(4, trace);
  options.step_ms = 50;
  const FragmentationResult result = Replay(trace, "paged", options);
  EXPECT_EQ(result.num_steps, 20'000'000'000u + 3);
  EXPECT_EQ(result.peak_held, 1u);
  EXPECT_NEAR(result.mean_bytes.Sum(), 4.0 * kBlockBytes, 1e-3);
}

// Slots of one size: what static is, without any memory.
uint64_t StepsWithSlots(const LengthTrace& trace, size_t num_slots) {
  std::vector<uint64_t> free_at(num_slots, 0);
  uint64_t last = 0;
  for (const LengthRequest& request : trace) {
    const auto slot = std::min_element(free_at.begin(), free_at.end());
    *slot += request.generated_tokens + 1;
    last = std::max(last, *slot);
  }
  return last;
}

TEST(Fragmentation, HoldsOnRandomTracesWhateverTheStrategy) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    LengthTrace trace(1 + random.Below(80));
    for (LengthRequest& request : trace) {
      request.context_tokens = 1 + static_cast<uint32_t>(random.Below(60));
      request.generated_tokens = static_cast<uint32_t>(random.Below(60));
    }
    FragmentationOptions options = Options(20 + random.Below(40), trace);
    options.fit = random.Below(2) == 0 ? kv::ArenaFit::kFirst : kv::ArenaFit::kBest;
    options.block_tokens = 16u << random.Below(2);
    const size_t block_bytes = options.block_tokens * kTokenBytes;
    const size_t num_blocks = options.budget_bytes / block_bytes;
    for (const kv::Strategy& strategy : kv::Strategies()) {
      SCOPED_TRACE(strategy.name);
      const FragmentationResult result = ReplayLengths(trace, strategy, options).value();
      ASSERT_EQ(result.num_completed, trace.size());
      ASSERT_NEAR(result.mean_bytes.Sum(), static_cast<double>(num_blocks * block_bytes), 1e-6);
      ASSERT_LE(result.num_refusals_by_holes, result.num_refusals);
      ASSERT_LE(result.mean_held, static_cast<double>(result.peak_held));
      ASSERT_LE(result.tokens_recomputed, result.num_preemptions * options.max_tokens);
      ASSERT_GE(result.mean_fragmentation, 0);
      ASSERT_LT(result.mean_fragmentation, 1);
    }
    const FragmentationResult paged = Replay(trace, "paged", options);
    ASSERT_EQ(paged.num_refusals_by_holes, 0u);
    ASSERT_EQ(paged.mean_bytes.external, 0);
    ASSERT_EQ(paged.mean_fragmentation, 0);
    ASSERT_EQ(paged.bytes_copied, 0u);
    ASSERT_LE(paged.peak_internal_bytes, paged.peak_held * (block_bytes - kTokenBytes));

    const FragmentationResult fixed = Replay(trace, "static", options);
    const size_t region_blocks =
        (options.max_tokens + options.block_tokens - 1) / options.block_tokens;
    ASSERT_EQ(fixed.num_steps, StepsWithSlots(trace, num_blocks / region_blocks));
    ASSERT_EQ(fixed.num_preemptions, 0u);
    ASSERT_EQ(fixed.num_refusals_by_holes, 0u);
    ASSERT_EQ(fixed.bytes_copied, 0u);
  }
}

}  // namespace
}  // namespace kvern::sim
