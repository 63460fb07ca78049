#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvern::engine {
namespace {

TEST(StepCostTest, ChunksCostWhatTheWholeDoesAndReadingTheirHistory) {
  EXPECT_DOUBLE_EQ(WorkOf(0, 96) + WorkOf(96, 32), WorkOf(0, 128) + 0.5 * 96 / 1024);
  EXPECT_GT(WorkOf(1000, 1), WorkOf(0, 1));
}

TEST(StepCostTest, KnowsNothingAtFirst) {
  StepCost cost;
  EXPECT_FALSE(cost.is_known());
  EXPECT_EQ(cost.TokensWithin(1, 0, 0, 512), 512);
}

TEST(StepCostTest, FindsTheLine) {
  StepCost cost;
  SplitMix64 random(1);
  for (int i = 0; i < 200; ++i) {
    const double work = 1 + static_cast<double>(random.Below(100));
    cost.Told(work, static_cast<int64_t>(3000 + 50 * work));
  }
  EXPECT_NEAR(cost.base_us(), 3000, 30);
  EXPECT_NEAR(cost.rate_us(), 50, 1);
  EXPECT_GE(cost.BoundUs(40), 5000);
  EXPECT_LE(cost.BoundUs(40), 5500);
  const size_t tokens = cost.TokensWithin(8000, 4, 0, 512);
  EXPECT_LE(cost.BoundUs(4 + WorkOf(0, tokens)), 8000);
  EXPECT_GT(cost.BoundUs(4 + WorkOf(0, tokens + 1)), 8000);
}

TEST(StepCostTest, LeavesRoomForNoise) {
  StepCost calm, noisy;
  SplitMix64 random(2);
  for (int i = 0; i < 300; ++i) {
    const double work = 1 + static_cast<double>(random.Below(100));
    const auto time = static_cast<int64_t>(3000 + 50 * work);
    calm.Told(work, time);
    noisy.Told(work, time + static_cast<int64_t>(random.Below(2000)) - 1000);
  }
  EXPECT_LT(noisy.TokensWithin(8000, 4, 0, 512), calm.TokensWithin(8000, 4, 0, 512));
}

TEST(StepCostTest, OneStepInAHundredTakesLongerThanItsBound) {
  StepCost cost;
  SplitMix64 random(6);
  int num_longer = 0, num_close = 0;
  for (int i = 0; i < 6000; ++i) {
    const double work = 20 + static_cast<double>(random.Below(40));
    // A tenth of the steps takes up to twice as long.
    const double noise = random.Below(10) == 0 ? 1 + random.Uniform() : 1;
    const double time = (3000 + 200 * work) * noise;
    if (i >= 2000) {
      num_longer += time > cost.BoundUs(work) ? 1 : 0;
      num_close += cost.BoundUs(work) < 2.1 * (3000 + 200 * work) ? 1 : 0;
    }
    cost.Told(work, static_cast<int64_t>(time));
  }
  EXPECT_GT(num_longer, 20);
  EXPECT_LT(num_longer, 60);
  EXPECT_GT(num_close, 3900);
}

// Steps that are all alike say nothing about the slope: too much is assumed, not too little.
TEST(StepCostTest, IsCarefulWhereOnlyDecodeWasSeen) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) cost.Told(4, 8000);
  EXPECT_LE(cost.TokensWithin(16000, 4, 0, 512), 4);
  // … until steps differ.
  for (int i = 0; i < 50; ++i) cost.Told(4 + 16, 8000 + 16 * 100);
  EXPECT_GT(cost.TokensWithin(16000, 4, 0, 512), 20);
}

TEST(StepCostTest, FollowsAMachineThatBecomesSlower) {
  StepCost cost;
  SplitMix64 random(3);
  for (const int64_t rate : {50, 100}) {
    for (int i = 0; i < 200; ++i) {
      const auto work = static_cast<int64_t>(1 + random.Below(100));
      cost.Told(static_cast<double>(work), 1000 + rate * work);
    }
    EXPECT_NEAR(cost.rate_us(), static_cast<double>(rate), 3);
  }
}

// Long prefills before, and a hiccup, leave the estimate of short steps as it is.
TEST(StepCostTest, LongStepsDoNotDrownShortOnes) {
  StepCost cost;
  SplitMix64 random(4);
  for (int i = 0; i < 10; ++i) cost.Told(2000 + 200 * i, 1'500'000 + 300'000 * (i % 3));
  for (int i = 0; i < 60; ++i) {
    const auto work = static_cast<int64_t>(4 + random.Below(30));
    cost.Told(static_cast<double>(work), 8000 + 700 * work);
    if (i == 50) cost.Told(20, 400'000);
  }
  EXPECT_NEAR(cost.base_us() + 20 * cost.rate_us(), 22'000, 1500);
  EXPECT_LT(cost.BoundUs(20), 33'000);
}

// Where noise hides the slope, or turns it, more work still takes more time.
TEST(StepCostTest, NoiseDoesNotMakeWorkFree) {
  StepCost cost;
  SplitMix64 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto work = static_cast<int64_t>(20 + random.Below(10));
    cost.Told(static_cast<double>(work),
              40'000 - 700 * work + static_cast<int64_t>(random.Below(8000)));
    EXPECT_LT(cost.TokensWithin(60'000, 25, 0, 512), 120);
  }
}

// Steps end a little behind the aim, sometimes much.
TEST(AimTest, OneStepInTwoHundredIsLate) {
  Aim aim;
  SplitMix64 random(7);
  int num_late = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double late_by =
        random.Below(100) == 0 ? 0.4 * random.Uniform() : 0.02 * random.Uniform();
    const bool is_late = aim.share() + late_by > 1;
    if (i >= 2000) num_late += is_late ? 1 : 0;
    aim.Told(is_late);
  }
  EXPECT_GT(num_late, 60);
  EXPECT_LT(num_late, 120);
  EXPECT_GT(aim.share(), 0.6);
}

TEST(AimTest, AMachineThatIsAlwaysLateLeavesHalf) {
  Aim aim;
  for (int i = 0; i < 100; ++i) aim.Told(true);
  EXPECT_DOUBLE_EQ(aim.share(), 0.5);
  for (int i = 0; i < 100'000; ++i) aim.Told(false);
  EXPECT_DOUBLE_EQ(aim.share(), 0.97);
}

TEST(StepCostTest, NoTimeAtAllIsNoHarm) {
  StepCost cost;
  for (int i = 0; i < 10; ++i) cost.Told(5, 0);
  EXPECT_GT(cost.TokensWithin(1000, 5, 0, 64), 32);
}

}  // namespace
}  // namespace kvern::engine
