// The chooser against texts whose acceptance is known, and against every fixed length.
#include "engine/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace kvern::engine {
namespace {

// A memory-bound decode: one token costs ten times what another in the same step does.
constexpr DraftCosts kCheapDrafts = {.base_us = 9000, .per_token_us = 1000, .draft_token_us = 10};
constexpr DraftCosts kDraftModel = {.base_us = 9000, .per_token_us = 1000, .draft_token_us = 1500};
constexpr size_t kMaxDraft = 8;

struct Outcome {
  size_t tokens = 0;
  size_t drafted = 0;
  double cost_us = 0;

  double us_per_token() const { return cost_us / static_cast<double>(tokens); }
};

// `num_steps` of a text of which each drafted token is right with `acceptance`.
Outcome Decode(DraftLength& length, double acceptance, size_t num_steps, const DraftCosts& costs) {
  SplitMix64 random(7);
  Outcome outcome;
  for (size_t step = 0; step < num_steps; ++step) {
    const size_t drafted = length.Next(costs);
    size_t accepted = 0;
    while (accepted < drafted && random.Uniform() < acceptance) ++accepted;
    length.Told(drafted, accepted);
    outcome.tokens += accepted + 1;
    outcome.drafted += drafted;
    outcome.cost_us += costs.base_us / static_cast<double>(costs.num_sequences) +
                       static_cast<double>(drafted + 1) * costs.per_token_us +
                       static_cast<double>(drafted) * costs.draft_token_us;
  }
  return outcome;
}

double BestFixed(double acceptance, size_t num_steps, const DraftCosts& costs) {
  double best = 1e300;
  for (size_t fixed = 0; fixed <= kMaxDraft; ++fixed) {
    DraftLength length(fixed, false);
    best = std::min(best, Decode(length, acceptance, num_steps, costs).us_per_token());
  }
  return best;
}

TEST(DraftLengthTest, NotAdaptiveIsAlwaysTheLongest) {
  DraftLength length(kMaxDraft, false);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(length.Next(kDraftModel), kMaxDraft);
    length.Told(kMaxDraft, 0);
  }
}

TEST(DraftLengthTest, AllAcceptedGoesToTheLongest) {
  DraftLength length(kMaxDraft, true);
  Decode(length, 1, 20, kDraftModel);
  EXPECT_EQ(length.Next(kDraftModel), kMaxDraft);
  EXPECT_GT(length.acceptance(), 0.99);
}

TEST(DraftLengthTest, NoneAcceptedStopsAndProbesRarely) {
  for (const DraftCosts& costs : {kCheapDrafts, kDraftModel}) {
    DraftLength length(kMaxDraft, true);
    const Outcome first = Decode(length, 0, 64, costs);
    EXPECT_LE(first.drafted, 40u);
    const Outcome later = Decode(length, 0, 10000, costs);
    EXPECT_LE(later.drafted, 20u);
    EXPECT_GE(later.drafted, 9u) << "it must go on probing";
  }
}

TEST(DraftLengthTest, ComesBackWhenTheTextBecomesEasy) {
  DraftLength length(kMaxDraft, true);
  Decode(length, 0, 5000, kDraftModel);
  const Outcome easy = Decode(length, 1, 1200, kDraftModel);
  EXPECT_EQ(length.Next(kDraftModel), kMaxDraft);
  EXPECT_GT(easy.tokens, 1300u);
}

TEST(DraftLengthTest, ComesBackSoonAfterAShortHardPassage) {
  DraftLength length(kMaxDraft, true);
  Decode(length, 1, 100, kDraftModel);
  Decode(length, 0, 60, kDraftModel);
  EXPECT_EQ(length.Next(kDraftModel), 0u);
  Decode(length, 1, 80, kDraftModel);
  EXPECT_EQ(length.Next(kDraftModel), kMaxDraft);
}

TEST(DraftLengthTest, IsNearTheBestFixedLengthForAnyAcceptance) {
  constexpr size_t kNumSteps = 4000;
  for (const DraftCosts& costs : {kCheapDrafts, kDraftModel}) {
    for (const double acceptance : {0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 1.0}) {
      DraftLength length(kMaxDraft, true);
      const double adaptive = Decode(length, acceptance, kNumSteps, costs).us_per_token();
      EXPECT_LT(adaptive, BestFixed(acceptance, kNumSteps, costs) * 1.06)
          << "acceptance " << acceptance << ", a draft of " << costs.draft_token_us << " us";
    }
  }
}

TEST(DraftLengthTest, IsOffWithoutProbesInABatchThatIsExpensivePerToken) {
  const DraftCosts crowd = {
      .base_us = 9000, .per_token_us = 1000, .draft_token_us = 1500, .num_sequences = 64};
  DraftLength length(kMaxDraft, true);
  EXPECT_EQ(Decode(length, 1, 3000, crowd).drafted, 0u);
  EXPECT_GT(length.Next(kDraftModel), 0u) << "what was learnt before the crowd still holds";
}

TEST(DraftLengthTest, UnknownCostsCountAsFree) {
  DraftLength length(kMaxDraft, true);
  EXPECT_EQ(length.Next({}), kMaxDraft);
  Decode(length, 0, 200, {.base_us = 1});
  EXPECT_EQ(length.Next({}), 0u);
}

TEST(DraftLengthTest, NoProposalIsNoVerdict) {
  DraftLength length(kMaxDraft, true);
  const size_t first = length.Next(kCheapDrafts);
  for (int i = 0; i < 100; ++i) {
    length.Told(0, 0);
    EXPECT_EQ(length.Next(kCheapDrafts), first);
  }
}

TEST(DraftLengthTest, IsAPureFunctionOfWhatItWasTold) {
  std::vector<size_t> answers[2];
  for (auto& lengths : answers) {
    DraftLength length(kMaxDraft, true);
    SplitMix64 random(3);
    for (int i = 0; i < 1000; ++i) {
      lengths.push_back(length.Next(i % 3 == 0 ? kCheapDrafts : kDraftModel));
      length.Told(lengths.back(), random.Below(lengths.back() + 1));
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(DraftLengthTest, AMaximumOfZeroNeverDrafts) {
  DraftLength length(0, true);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(length.Next({}), 0u);
}

TEST(DraftTokenCostTest, IsThatOfDraftsAndNotOfReadingPrompts) {
  DraftTokenCost cost;
  EXPECT_EQ(cost.us(), 0);
  cost.Told(0, 1e6);
  cost.Told(2, 1e6);
  for (int i = 0; i < 10; ++i) cost.Told(4, 2000);
  EXPECT_NEAR(cost.us(), 500, 1);
  for (int i = 0; i < 4; ++i) cost.Told(4, 1e6);
  EXPECT_LT(cost.us(), 1000);
  for (int i = 0; i < 30; ++i) cost.Told(4, 2000);
  EXPECT_NEAR(cost.us(), 500, 20);
}

TEST(DraftTokenCostTest, FollowsWhatBecomesMoreExpensive) {
  DraftTokenCost cost;
  for (int i = 0; i < 10; ++i) cost.Told(4, 400);
  for (int i = 0; i < 60; ++i) cost.Told(4, 40'000);
  EXPECT_NEAR(cost.us(), 10'000, 200);
}

TEST(DraftTokenCostTest, WhatWasTooExpensiveIsTriedAgain) {
  DraftTokenCost cost;
  for (int i = 0; i < 10; ++i) cost.Told(1, 20'000);
  DraftLength length(kMaxDraft, true);
  const auto next = [&] {
    return length.Next({.base_us = 9000, .per_token_us = 1000, .draft_token_us = cost.us()});
  };
  const auto steps_until_tried = [&] {
    int num_steps = 0;
    for (; next() == 0; ++num_steps) cost.NotAsked();
    return num_steps;
  };
  for (int i = 0; i < 3; ++i) {
    const int num_steps = steps_until_tried();
    EXPECT_GT(num_steps, 100);
    EXPECT_LT(num_steps, 1000);
    cost.Told(1, 20'000);
  }
  steps_until_tried();
  cost.Told(1, 10);
  EXPECT_EQ(cost.us(), 10);
}

}  // namespace
}  // namespace kvern::engine
