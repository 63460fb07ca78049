// The simulation of the engine: it finds nothing in a short run, finds whatever is broken on
// purpose, and makes the same decisions for the same seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/model_check/runner.h"

namespace kvern::engine::model_check {
namespace {

constexpr uint64_t kSeed = 20261130;

const EngineSetup& SetupNamed(std::string_view name) {
  const EngineSetup* const setup = FindSetup(name);
  EXPECT_NE(setup, nullptr) << name;
  return *setup;
}

TEST(EngineSim, EverySetupPassesAShortRun) {
  SimulationCounts counts;
  for (const EngineSetup& setup : Setups()) {
    const HuntResult result = Hunt(setup, kSeed, {.seconds = 10, .num_steps = 5'000}, {});
    EXPECT_FALSE(result.failure) << setup.name << " with seed " << result.failure->seed << ": "
                                 << result.failure->finding;
    EXPECT_GT(result.num_cases, 0u) << setup.name;
    counts.Add(result.counts);
  }
  // What it is about has happened.
  for (const uint64_t count :
       {counts.refused, counts.cancelled, counts.deadlines, counts.failed, counts.preemptions,
        counts.waits, counts.forks, counts.loads, counts.pauses, counts.self_checks, counts.parts,
        counts.shared_groups, counts.drafts, counts.accepted}) {
    EXPECT_GT(count, 0u);
  }
}

TEST(EngineSim, OneSeedGivesOneRun) {
  std::set<uint64_t> traces;
  for (uint64_t seed = kSeed; seed < kSeed + 4; ++seed) {
    const EngineSetup& setup = SetupNamed("plain");
    const auto operations = MakeOperations(setup, seed, 100);
    const uint64_t trace = RunCase(setup, operations, {});
    EXPECT_EQ(RunCase(setup, operations, {}), trace) << "seed " << seed;
    traces.insert(trace);
  }
  EXPECT_EQ(traces.size(), 4u);
}

TEST(EngineSim, AnOperationIsReadAsItIsPrinted) {
  for (const Operation& operation : MakeOperations(SetupNamed("all"), kSeed, 300)) {
    const auto parsed = ParseOperation(ToText(operation));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(ToText(*parsed), ToText(operation));
  }
  EXPECT_FALSE(ParseOperation("submit 3"));
  EXPECT_FALSE(ParseOperation("fly 3 4 0000000000000001"));
}

struct Broken {
  std::string_view name;
  Mutation mutation;
  std::string_view setup;
  std::string finding;  // what it says, as a regular expression
};

class BrokenEngineTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenEngineTest, IsFound) {
  const Broken& broken = GetParam();
  const HuntResult result =
      Hunt(SetupNamed(broken.setup), kSeed, {.seconds = 20, .num_steps = 50'000},
           {.full_check_every = 16, .mutation = broken.mutation});
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(result.failure->finding, testing::ContainsRegex(broken.finding));
}

INSTANTIATE_TEST_SUITE_P(
    EngineSim, BrokenEngineTest,
    testing::Values(Broken{"ABitOfARow", Mutation::kFlipsBit, "plain", "wrong answer"},
                    Broken{"AStoreThatCopiesTooLittle", Mutation::kCopiesTooLittle, "plain",
                           "never written"},
                    Broken{"ALeaseThatIsKept", Mutation::kLeaks, "plain", "nobody runs"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(EngineSim, AFindingIsShrunkToAFewOperationsAndFailsAlike) {
  const EngineSetup& setup = SetupNamed("plain");
  const SimulationOptions options{.full_check_every = 16, .mutation = Mutation::kCopiesTooLittle};
  const HuntResult result = Hunt(setup, kSeed, {.seconds = 20, .num_steps = 50'000}, options);
  ASSERT_TRUE(result.failure);
  const auto& [seed, finding, operations] = *result.failure;
  const auto shrunk = Shrink(setup, operations, options, finding, /*seconds=*/20);
  EXPECT_LE(shrunk.size(), 8u);
  const auto finding_of_shrunk = FindingOf(setup, shrunk, options);
  ASSERT_TRUE(finding_of_shrunk);
  EXPECT_NE(finding_of_shrunk->find("never written"), std::string::npos) << *finding_of_shrunk;
}

}  // namespace
}  // namespace kvern::engine::model_check
