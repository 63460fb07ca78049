#include "server/auth/rate_limiter.h"

#include <gtest/gtest.h>

#include "engine/model_check/fake_clock.h"

namespace kvern::server {
namespace {

using engine::model_check::FakeClock;

TEST(RateLimiter, LetsABurstThroughAndThenSoManyAMinute) {
  FakeClock clock;
  RateLimiter limiter(clock);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 60), 1'000'000);
  EXPECT_EQ(limiter.Take("b", 60), std::nullopt);
  clock.Advance(400'000);
  EXPECT_EQ(limiter.Take("a", 60), 600'000);
  clock.Advance(600'000);
  EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 60), 1'000'000);
  clock.Advance(3'600'000'000);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_NE(limiter.Take("a", 60), std::nullopt);
}

TEST(RateLimiter, TheSlowestMayStillAskOnce) {
  FakeClock clock;
  RateLimiter limiter(clock);
  EXPECT_EQ(limiter.Take("a", 0.5), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 0.5), 120'000'000);
  clock.Advance(120'000'000);
  EXPECT_EQ(limiter.Take("a", 0.5), std::nullopt);
}

}  // namespace
}  // namespace kvern::server
