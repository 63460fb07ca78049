// The model checker itself: it finds nothing in a short run, finds whatever is broken on purpose,
// and shrinks what it finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/model_check/runner.h"

namespace kvern::kv::model_check {
namespace {

constexpr uint64_t kSeed = 20240731;

// What a hunt finds where something is broken.
HuntResult HuntWith(const CacheSetup& setup, Mutation mutation) {
  return Hunt(setup, kSeed, {.seconds = 60, .num_steps = 50000},
              {.full_check_every = 4, .mutation = mutation});
}

const CacheSetup& SetupNamed(std::string_view name) {
  const CacheSetup* const setup = FindSetup(name);
  EXPECT_NE(setup, nullptr) << name;
  return *setup;
}

TEST(ModelCheck, EverySetupPassesAShortRun) {
  for (const CacheSetup& setup : Setups()) {
    const HuntResult result =
        Hunt(setup, kSeed, {.seconds = 1, .num_steps = 20000}, {.full_check_every = 4});
    EXPECT_FALSE(result.failure) << setup.name << " with seed " << result.failure->seed << ": "
                                 << result.failure->finding;
    EXPECT_GT(result.num_cases, 0u) << setup.name;
  }
}

TEST(ModelCheck, OneSeedGivesOneCase) {
  const CacheSetup& setup = SetupNamed("full");
  const auto first = MakeOperations(setup, kSeed, 100), again = MakeOperations(setup, kSeed, 100);
  ASSERT_EQ(first.size(), 100u);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(ToText(first[i]), ToText(again[i]));
}

TEST(ModelCheck, AnOperationIsReadAsItIsPrinted) {
  for (const Operation& operation : MakeOperations(SetupNamed("tier"), kSeed, 500)) {
    const auto parsed = ParseOperation(ToText(operation));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(ToText(*parsed), ToText(operation));
  }
  EXPECT_FALSE(ParseOperation("append 3"));
  EXPECT_FALSE(ParseOperation("fly 3 4 0000000000000001"));
}

struct Broken {
  std::string_view name;
  Mutation mutation;
  std::string_view setup;
  std::string finding;  // what it says, as a regular expression
};

class BrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTest, IsFound) {
  const Broken& broken = GetParam();
  const HuntResult result = HuntWith(SetupNamed(broken.setup), broken.mutation);
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(result.failure->finding, testing::ContainsRegex(broken.finding));
}

INSTANTIATE_TEST_SUITE_P(
    ModelCheck, BrokenTest,
    testing::Values(
        Broken{"AByteOfABlock", Mutation::kFlipsByte, "full", "wrong bytes"},
        Broken{"AStoreThatDoesNotZero", Mutation::kDoesNotZero, "full", "not zeros"},
        Broken{"AStoreThatCopiesTooLittle", Mutation::kCopiesTooLittle, "full", "wrong bytes"},
        Broken{"NamespacesThatAreOne", Mutation::kMixesNamespaces, "roomy",
               "were published|does not produce|were accepted"},
        Broken{"AWaiterThatIsNotTold", Mutation::kDropsEvent, "full", "waiter"},
        Broken{"ALeaseThatIsKept", Mutation::kLeaks, "full", "nobody is left"},
        Broken{"ATextThatNobodyPublished", Mutation::kForgetsText, "roomy", "published"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ModelCheck, AFindingIsShrunkToAFewStepsAndFailsAlike) {
  const CacheSetup& setup = SetupNamed("full");
  const CheckerOptions options{.mutation = Mutation::kCopiesTooLittle};
  const HuntResult result = HuntWith(setup, options.mutation);
  ASSERT_TRUE(result.failure);
  const auto& [seed, finding, operations] = *result.failure;
  const auto shrunk = Shrink(setup, operations, options, finding, /*seconds=*/20);
  EXPECT_LE(shrunk.size(), 6u);
  const auto finding_of_shrunk = FindingOf(setup, shrunk, options);
  ASSERT_TRUE(finding_of_shrunk);
  EXPECT_NE(finding_of_shrunk->find("wrong bytes"), std::string::npos) << *finding_of_shrunk;
}

}  // namespace
}  // namespace kvern::kv::model_check
