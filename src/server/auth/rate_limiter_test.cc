#include "server/auth/rate_limiter.h"

#include <gtest/gtest.h>

namespace kvern::server {
namespace {

class ManualClock final : public Clock {
 public:
  int64_t now_us() const override { return now; }
  int64_t now = 0;
};

TEST(RateLimiter, LetsABurstThroughAndThenSoManyAMinute) {
  ManualClock clock;
  RateLimiter limiter(clock);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 60), 1'000'000);
  EXPECT_EQ(limiter.Take("b", 60), std::nullopt);
  clock.now += 400'000;
  EXPECT_EQ(limiter.Take("a", 60), 600'000);
  clock.now += 600'000;
  EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 60), 1'000'000);
  clock.now += 3'600'000'000;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Take("a", 60), std::nullopt);
  EXPECT_NE(limiter.Take("a", 60), std::nullopt);
}

TEST(RateLimiter, TheSlowestMayStillAskOnce) {
  ManualClock clock;
  RateLimiter limiter(clock);
  EXPECT_EQ(limiter.Take("a", 0.5), std::nullopt);
  EXPECT_EQ(limiter.Take("a", 0.5), 120'000'000);
  clock.now += 120'000'000;
  EXPECT_EQ(limiter.Take("a", 0.5), std::nullopt);
}

}  // namespace
}  // namespace kvern::server
