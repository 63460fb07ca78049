// The functions of functions-inl.h against double precision, and every instruction set against the
// scalar definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "compute/isa.h"
#include "compute/rows.h"

namespace kvern::compute {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Apply(RowFunction function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  function(x.data(), x.size(), y.data());
  return y;
}

float Apply(RowFunction function, float x) {
  float y;
  function(&x, 1, &y);
  return y;
}

// `count` floats evenly over [from, to].
std::vector<float> Sweep(double from, double to, int count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(from + (to - from) * i / (count - 1));
  }
  return x;
}

// Distance from the exact value in units of the float spacing there.
double UlpError(float actual, double exact) {
  if (std::isinf(actual) && std::fabs(exact) > std::numeric_limits<float>::max()) return 0;
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(actual - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

struct Accuracy {
  double max_ulp = 0;
  float at = 0;
};

Accuracy Measure(RowFunction function, double (*exact)(double), const std::vector<float>& x) {
  const std::vector<float> y = Apply(function, x);
  Accuracy worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = UlpError(y[i], exact(x[i]));
    if (!(error <= worst.max_ulp)) worst = {error, x[i]};
  }
  return worst;
}

double ExactSilu(double x) { return x / (1 + std::exp(-x)); }
double ExactGelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// The fastest table; that it equals the scalar one is another test.
const RowKernels& Rows() { return *SelectIsa("auto").value()->rows; }

void ExpectWithin(double bound, const char* name, Accuracy accuracy) {
  EXPECT_LE(accuracy.max_ulp, bound) << name << " at " << accuracy.at;
  testing::Test::RecordProperty(name, std::to_string(accuracy.max_ulp));
}

TEST(FunctionsTest, Exp2NonPositiveIsAccurate) {
  ExpectWithin(0.84, "exp2",
               Measure(Rows().exp2_non_positive, std::exp2, Sweep(-115, 0, 2'000'000)));
  EXPECT_EQ(Apply(Rows().exp2_non_positive, 0.0f), 1.0f);
  EXPECT_EQ(Apply(Rows().exp2_non_positive, -0.0f), 1.0f);
  EXPECT_EQ(Apply(Rows().exp2_non_positive, -1.0f), 0.5f);
  EXPECT_EQ(Apply(Rows().exp2_non_positive, -115.0f), 0x1p-115f);
  for (const float x :
       {std::nextafter(-115.0f, -116.0f), -127.0f, -1e9f, -3e38f, -kInfinity, kNan}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(Apply(Rows().exp2_non_positive, x)), 0u) << x;
  }
}

TEST(FunctionsTest, ExpIsAccurateOverItsWholeRange) {
  ExpectWithin(0.9, "exp", Measure(Rows().exp, std::exp, Sweep(-104, 89, 2'000'000)));
  ExpectWithin(0.9, "exp near 0", Measure(Rows().exp, std::exp, Sweep(-0.4, 0.4, 500'000)));
  EXPECT_EQ(Apply(Rows().exp, 0.0f), 1.0f);
  EXPECT_EQ(Apply(Rows().exp, 88.72283f), std::exp(88.72283f));
  EXPECT_EQ(Apply(Rows().exp, 88.72284f), kInfinity);
  EXPECT_EQ(Apply(Rows().exp, -103.97f), std::numeric_limits<float>::denorm_min());
  for (const float x : {-104.0f, -1e9f, -3e38f, -kInfinity}) EXPECT_EQ(Apply(Rows().exp, x), 0.0f);
  for (const float x : {89.0f, 1e9f, 3e38f, kInfinity}) EXPECT_EQ(Apply(Rows().exp, x), kInfinity);
  EXPECT_TRUE(std::isnan(Apply(Rows().exp, kNan)));
}

TEST(FunctionsTest, LogIsAccurateOverItsWholeRange) {
  std::vector<float> x;
  for (uint32_t bits = 1; bits < 0x7F800000; bits += 1009) x.push_back(std::bit_cast<float>(bits));
  ExpectWithin(0.84, "log", Measure(Rows().log, std::log, x));
  ExpectWithin(0.84, "log near 1", Measure(Rows().log, std::log, Sweep(0.6, 1.5, 2'000'000)));
  EXPECT_EQ(std::bit_cast<uint32_t>(Apply(Rows().log, 1.0f)), 0u);
  EXPECT_EQ(Apply(Rows().log, 0.0f), -kInfinity);
  EXPECT_EQ(Apply(Rows().log, -0.0f), -kInfinity);
  EXPECT_EQ(Apply(Rows().log, kInfinity), kInfinity);
  for (const float bad : {-1.0f, -1e-40f, -kInfinity, kNan}) {
    EXPECT_TRUE(std::isnan(Apply(Rows().log, bad))) << bad;
  }
}

TEST(FunctionsTest, TanhIsAccurateAndOdd) {
  ExpectWithin(1.3, "tanh", Measure(Rows().tanh, std::tanh, Sweep(-12, 12, 2'000'000)));
  ExpectWithin(0.5, "tanh near 0", Measure(Rows().tanh, std::tanh, Sweep(-1e-3, 1e-3, 100'000)));
  for (const float x : {0.0f, 1e-40f, 0.3f, 0.625f, 5.0f, 100.0f, 3e38f, kInfinity}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(Apply(Rows().tanh, -x)),
              std::bit_cast<uint32_t>(-Apply(Rows().tanh, x)));
  }
  EXPECT_EQ(Apply(Rows().tanh, kInfinity), 1.0f);
  EXPECT_TRUE(std::isnan(Apply(Rows().tanh, kNan)));
}

TEST(FunctionsTest, SiluAndGeluAreAccurate) {
  ExpectWithin(2.3, "silu", Measure(Rows().silu, ExactSilu, Sweep(-87, 87, 2'000'000)));
  ExpectWithin(2.3, "silu near 0", Measure(Rows().silu, ExactSilu, Sweep(-1, 1, 500'000)));
  ExpectWithin(1.6, "gelu above 0", Measure(Rows().gelu_tanh, ExactGelu, Sweep(0, 87, 1'000'000)));
  const std::vector<float> x = Sweep(-12, 0, 1'000'000), y = Apply(Rows().gelu_tanh, x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], ExactGelu(x[i]), 1.5e-7) << x[i];
  for (const RowFunction function : {Rows().silu, Rows().gelu_tanh}) {
    EXPECT_EQ(Apply(function, 0.0f), 0.0f);
    EXPECT_TRUE(std::signbit(Apply(function, -0.0f)));
    EXPECT_EQ(Apply(function, 3e38f), 3e38f);
    EXPECT_EQ(Apply(function, -3e38f), 0.0f);
    EXPECT_TRUE(std::isnan(Apply(function, kNan)));
  }
}

// NaNs count as equal: their sign and payload are not part of a result.
bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Random bit patterns (subnormals, infinities, NaNs and all), common magnitudes and edges.
std::vector<float> HostileInputs(uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> x = {0.0f,       -0.0f,   1e-45f,  -1e-45f,  1e-39f,    kInfinity,
                          -kInfinity, kNan,    3.4e38f, -3.4e38f, 88.72283f, -87.4f,
                          -115.0f,    -103.9f, 0.625f,  1.0f};
  for (int i = 0; i < 60'000; ++i)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.Next())));
  for (const double width : {1e-3, 1.0, 12.0, 130.0}) {
    for (int i = 0; i < 15'000; ++i)
      x.push_back(static_cast<float>((random.Uniform() * 2 - 1) * width));
  }
  return x;
}

TEST(FunctionsTest, EveryInstructionSetGivesTheScalarBits) {
  constexpr uint64_t kSeed = 1;
  const std::vector<float> x = HostileInputs(kSeed);
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (const auto member : {&RowKernels::exp2_non_positive, &RowKernels::exp, &RowKernels::log,
                              &RowKernels::tanh, &RowKernels::silu, &RowKernels::gelu_tanh}) {
      const std::vector<float> expected = Apply(kScalarRows.*member, x);
      const std::vector<float> actual = Apply(isa.rows->*member, x);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(SameBits(actual[i], expected[i]))
            << isa.name << ", x " << x[i] << ": " << actual[i] << ", scalar " << expected[i]
            << ", seed " << kSeed;
      }
    }
  }
}

}  // namespace
}  // namespace kvern::compute
