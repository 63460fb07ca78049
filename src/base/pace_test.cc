#include "base/pace.h"

#include <gtest/gtest.h>

namespace kvern {
namespace {

class HandClock final : public Clock {
 public:
  int64_t now_us() const override { return now; }
  int64_t now = 500;
};

TEST(PaceTest, HasTimeForAPartLikeThoseBefore) {
  HandClock clock;
  PaceUntil pace(&clock, 1500, std::nullopt);
  EXPECT_FALSE(pace.part_us());
  clock.now = 1000;
  pace.Begin();
  EXPECT_FALSE(pace.part_us());
  clock.now = 1200;
  EXPECT_TRUE(pace.HasTime());
  EXPECT_EQ(pace.part_us(), 200);
  clock.now = 1350;  // two parts of 175
  EXPECT_FALSE(pace.HasTime());
  clock.now = 1350;
  pace.Begin();
  clock.now = 1425;
  EXPECT_TRUE(pace.HasTime());
  clock.now = 1426;
  EXPECT_TRUE(pace.HasTime());  // two of 38
}

TEST(PaceTest, HasNoneBehindItsEnd) {
  HandClock clock;
  PaceUntil pace(&clock, 400, std::nullopt);
  EXPECT_TRUE(pace.Begin());
  EXPECT_FALSE(pace.HasTime());
}

TEST(PaceTest, HasTimeForAFirstPartThatIsShortEnough) {
  HandClock clock;
  EXPECT_TRUE(PaceUntil(&clock, 600, 100).Begin());
  EXPECT_FALSE(PaceUntil(&clock, 600, 101).Begin());
}

}  // namespace
}  // namespace kvern
