// The generators against published answers.
#include "base/rng.h"

#include <gtest/gtest.h>

namespace kvern {
namespace {

using Words = std::array<uint32_t, 4>;

// From the known-answer tests of Random123.
TEST(RngTest, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox4x32({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {0xFFFFFFFF, 0xFFFFFFFF}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(RngTest, SplitMixGivesThePublishedAnswers) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(RngTest, RangesHold) {
  SplitMix64 random(3);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_LT(random.Below(7), 7u);
    const double u = random.Uniform();
    EXPECT_TRUE(u >= 0 && u < 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
  EXPECT_EQ(random.Below(1), 0u);
}

}  // namespace
}  // namespace kvern
