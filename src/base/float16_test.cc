#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvern {
namespace {

// The definition, in double: every half and bfloat16 is exact in it.
double Decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// The nearest by search: the last encoding not above |value|, or its successor when that is nearer
// or as near and even. Past the largest finite value stands the next power of two, as infinity.
uint16_t Encode(float value, int exponent_bits, int mantissa_bits) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const auto decode = [&](uint16_t bits) {
    if (bits == infinity) return std::ldexp(1.0, 1 << (exponent_bits - 1));
    return Decode(bits, exponent_bits, mantissa_bits);
  };
  uint16_t low = 0;
  uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - decode(low);
  const double above = decode(high) - magnitude;
  const bool up = above < below || (above == below && (low & 1) != 0);
  return sign | (up ? high : low);
}

std::vector<float> EdgeFloats() {
  std::vector<float> values;
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const float factor : {1.0f, 1.5f, 1.75f, 1.0f + 0x1p-11f, 1.0f + 0x1p-10f + 0x1p-11f}) {
      const float value = std::ldexp(factor, exponent);
      for (const float near : {value, std::nextafter(value, 0.0f), std::nextafter(value, INFINITY)})
        for (const float signed_value : {near, -near}) values.push_back(signed_value);
    }
  }
  return values;
}

TEST(Float16, EveryHalfWidensExactlyAndComesBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const double expected = Decode(half, 5, 10);
    const float actual = HalfToFloat(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual));
      EXPECT_EQ(FloatToHalf(actual), half | 0x200);
    } else {
      ASSERT_EQ(actual, expected) << half;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << half;
      ASSERT_EQ(FloatToHalf(actual), half);
    }
  }
}

TEST(Float16, EveryBfloat16WidensExactlyAndComesBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bfloat = static_cast<uint16_t>(i);
    const double expected = Decode(bfloat, 8, 7);
    const float actual = Bfloat16ToFloat(bfloat);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual));
      EXPECT_EQ(FloatToBfloat16(actual), bfloat | 0x40);
    } else {
      ASSERT_EQ(actual, expected) << bfloat;
      ASSERT_EQ(FloatToBfloat16(actual), bfloat);
    }
  }
}

TEST(Float16, NarrowingRoundsToNearestEven) {
  std::vector<float> values = EdgeFloats();
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) values.push_back(std::bit_cast<float>(uint32_t(random())));
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(FloatToHalf(value), Encode(value, 5, 10)) << std::bit_cast<uint32_t>(value);
    ASSERT_EQ(FloatToBfloat16(value), Encode(value, 8, 7)) << std::bit_cast<uint32_t>(value);
  }
}

TEST(Float16, NarrowingKeepsInfinityAndNan) {
  EXPECT_EQ(FloatToHalf(INFINITY), 0x7C00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xFC00);
  EXPECT_EQ(FloatToBfloat16(-INFINITY), 0xFF80);
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu, 0xFF800001u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(nan))));
    EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(nan))));
    EXPECT_EQ(FloatToHalf(nan) >> 15, bits >> 31);
    EXPECT_EQ(FloatToBfloat16(nan) >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace kvern
