// The table against long double, the functions under it, and what it refuses.
#include "compute/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/rng.h"
#include "compute/double_functions.h"

namespace kvern::compute {
namespace {

// Distance in units of the spacing of doubles at the exact value.
double UlpError(double actual, long double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return static_cast<double>(std::fabs(actual - exact) / std::ldexp(1.0L, exponent - 53));
}

TEST(DoubleFunctionsTest, SinCosAreWithinOneUlp) {
  constexpr uint64_t kSeed = 21;
  SplitMix64 random(kSeed);
  double worst = 0;
  const auto measure = [&](double angle) {
    const SinCos actual = SinCosDouble(angle);
    worst = std::max(worst, UlpError(actual.sin, std::sin(static_cast<long double>(angle))));
    worst = std::max(worst, UlpError(actual.cos, std::cos(static_cast<long double>(angle))));
  };
  for (const double range : {1.0, 100.0, 1e4, 1048576.0, kMaxAngle}) {
    for (int i = 0; i < 100'000; ++i) measure(random.Uniform() * range);
  }
  // The doubles nearest to multiples of π/2, where most of the angle cancels.
  for (int i = 0; i < 100'000; ++i) measure(static_cast<double>(random.Below(2'600'000)) * M_PI_2);
  for (int i = 1; i < (1 << 20); i += 7) measure(i);
  EXPECT_LE(worst, 1.0) << "seed " << kSeed;
  RecordProperty("sincos", std::to_string(worst));
  EXPECT_EQ(SinCosDouble(0).sin, 0.0);
  EXPECT_EQ(SinCosDouble(0).cos, 1.0);
}

TEST(DoubleFunctionsTest, ExpAndLogAreWithinOneUlp) {
  constexpr uint64_t kSeed = 22;
  SplitMix64 random(kSeed);
  double worst_exp = 0, worst_log = 0;
  for (int i = 0; i < 300'000; ++i) {
    const double x = (random.Uniform() * 2 - 1) * (i % 2 == 0 ? 700 : 1);
    worst_exp = std::max(worst_exp, UlpError(ExpDouble(x), std::exp(static_cast<long double>(x))));
    const double y = std::exp(random.Uniform() * 42 - 14);
    worst_log = std::max(worst_log, UlpError(LogDouble(y), std::log(static_cast<long double>(y))));
  }
  EXPECT_LE(worst_exp, 1.0) << "seed " << kSeed;
  EXPECT_LE(worst_log, 1.0) << "seed " << kSeed;
  RecordProperty("exp", std::to_string(worst_exp));
  RecordProperty("log", std::to_string(worst_log));
  EXPECT_EQ(ExpDouble(0), 1.0);
  EXPECT_EQ(LogDouble(1), 0.0);
}

void ExpectTableMatches(const RopeSpec& spec, uint32_t num_positions, uint32_t step) {
  const RopeTable table = RopeTable::Create(spec, num_positions).value();
  ASSERT_EQ(table.dims(), spec.dims);
  EXPECT_EQ(table.bytes(), (size_t{num_positions} * spec.dims * sizeof(float) + 63) / 64 * 64);
  size_t num_wrong = 0, num_values = 0;
  for (uint32_t position = 0; position < num_positions; position += step) {
    for (uint32_t i = 0; i < spec.dims / 2; ++i) {
      long double frequency = std::pow(static_cast<long double>(spec.base),
                                       -2 * static_cast<long double>(i) / spec.dims);
      if (!spec.factors.empty()) frequency /= spec.factors[i];
      const long double angle = position * (frequency / spec.linear_factor);
      const float cos = static_cast<float>(std::cos(angle));
      const float sin = static_cast<float>(std::sin(angle));
      ASSERT_NEAR(table.cos(position)[i], cos, 6.1e-8) << position << ", pair " << i;
      ASSERT_NEAR(table.sin(position)[i], sin, 6.1e-8) << position << ", pair " << i;
      num_wrong += (table.cos(position)[i] != cos) + (table.sin(position)[i] != sin);
      num_values += 2;
    }
  }
  // Rounded once, so nearly always the float next to the exact value.
  EXPECT_LE(static_cast<double>(num_wrong), 1e-4 * static_cast<double>(num_values))
      << num_wrong << " of " << num_values;
}

TEST(RopeTest, TableIsTheExactOneRounded) {
  ExpectTableMatches({.dims = 64, .base = 100000.0}, 2048, 1);
  ExpectTableMatches({.dims = 128, .base = 1e6}, 131072, 997);
  ExpectTableMatches({.dims = 2, .base = 10000.0}, 1 << 20, 31);
  ExpectTableMatches({.dims = 80, .base = 10000.0, .linear_factor = 4.0}, 4096, 5);
  RopeSpec llama3{.dims = 64, .base = 500000.0};
  for (int i = 0; i < 32; ++i) llama3.factors.push_back(i < 12 ? 1.0f : i < 20 ? 2.7f : 32.0f);
  ExpectTableMatches(llama3, 8192, 11);
}

TEST(RopeTest, RowsDoNotDependOnTheLengthOfTheTable) {
  const RopeSpec spec{.dims = 96, .base = 10000.0};
  const RopeTable small = RopeTable::Create(spec, 100).value();
  const RopeTable large = RopeTable::Create(spec, 5000).value();
  EXPECT_EQ(std::memcmp(small.cos(0), large.cos(0), 100 * 96 * sizeof(float)), 0);
  for (uint32_t i = 0; i < 48; ++i) {
    EXPECT_EQ(large.cos(0)[i], 1.0f);
    EXPECT_EQ(large.sin(0)[i], 0.0f);
  }
}

void ExpectRefused(const RopeSpec& spec, uint32_t num_positions, const char* message) {
  const auto table = RopeTable::Create(spec, num_positions);
  ASSERT_FALSE(table.ok()) << message;
  EXPECT_EQ(table.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(table.error().message, testing::HasSubstr(message));
}

TEST(RopeTest, BadSpecsAreRefusedByName) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused({.dims = 0}, 16, "dims: ");
  ExpectRefused({.dims = 7}, 16, "dims: ");
  ExpectRefused({.dims = 8, .base = 0}, 16, "base: ");
  ExpectRefused({.dims = 8, .base = kNan}, 16, "base: ");
  ExpectRefused({.dims = 8, .linear_factor = 0}, 16, "linear_factor: ");
  ExpectRefused({.dims = 8, .factors = {1, 1}}, 16, "2 values for 4 pairs");
  ExpectRefused({.dims = 4, .factors = {1, 0}}, 16, "value 1");
  ExpectRefused({.dims = 4, .factors = {1, std::numeric_limits<float>::infinity()}}, 16, "value 1");
  ExpectRefused({.dims = 4, .linear_factor = 1e-6}, 4096, "num_positions: 4096");
}

}  // namespace
}  // namespace kvern::compute
