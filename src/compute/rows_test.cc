// Row kernels: every instruction set against the scalar bits at every length and alignment, and the
// scalar ones against double precision.
#include "compute/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/isa.h"

namespace kvern::compute {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGuard = 12345.0f;
constexpr size_t kMaxLength = 83;
constexpr size_t kMaxOffset = 16;

std::vector<const RowKernels*> SupportedRows() {
  std::vector<const RowKernels*> tables;
  for (const Isa& isa : Isas()) {
    if (isa.supported()) tables.push_back(isa.rows);
  }
  return tables;
}

std::vector<float> RandomRow(SplitMix64& random, size_t n, double width = 4) {
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>((random.Uniform() * 2 - 1) * width);
  return x;
}

// A row with exactly `margin` floats before it, and guards on both sides to catch stray writes.
class GuardedRow {
 public:
  GuardedRow(const std::vector<float>& values, size_t margin)
      : storage_(values.size() + kMaxOffset + margin + 1, kGuard),
        margin_(margin),
        size_(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }

  float* data() { return storage_.data() + 1 + margin_; }
  std::vector<float> values() { return {data(), data() + size_}; }
  bool guards_hold() {
    return std::all_of(storage_.data(), data(), [](float x) { return x == kGuard; }) &&
           std::all_of(data() + size_, storage_.data() + storage_.size(),
                       [](float x) { return x == kGuard; });
  }

 private:
  std::vector<float> storage_;
  size_t margin_;
  size_t size_;
};

// An operation on three rows a, b, c of n floats that writes a.
struct Operation {
  const char* name;
  size_t min_length;
  size_t multiple;
  std::function<void(const RowKernels&, float* a, const float* b, const float* c, size_t n)> run;
};

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"rms_norm", 1, 1,
       [](const RowKernels& rows, float* a, const float* b, const float* c, size_t n) {
         rows.rms_norm(b, c, n, 1e-5f, a);
       }},
      {"rms_norm in place", 1, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         rows.rms_norm(a, b, n, 1e-5f, a);
       }},
      {"add", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         rows.add(a, b, n);
       }},
      {"scale", 0, 1,
       [](const RowKernels& rows, float* a, const float*, const float*, size_t n) {
         rows.scale(a, 0.37f, n);
       }},
      {"silu_mul", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float* c, size_t n) {
         rows.silu_mul(b, c, n, a);
       }},
      {"silu_mul in place", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         rows.silu_mul(a, b, n, a);
       }},
      {"rope_interleaved", 0, 2,
       [](const RowKernels& rows, float* a, const float* b, const float* c, size_t n) {
         rows.rope_interleaved(a, b, c, n);
       }},
      {"rope_neox", 0, 2,
       [](const RowKernels& rows, float* a, const float* b, const float* c, size_t n) {
         rows.rope_neox(a, b, c, n);
       }},
      {"softmax", 1, 1,
       [](const RowKernels& rows, float* a, const float*, const float*, size_t n) {
         rows.softmax(a, n);
       }},
      {"log_sum_exp", 1, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         a[0] = rows.log_sum_exp(b, n);
       }},
      {"all_finite", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         if (n > 0) a[0] = rows.all_finite(b, n) ? 1.0f : 0.0f;
       }},
      {"exp", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         rows.exp(b, n, a);
       }},
      {"gelu_tanh", 0, 1,
       [](const RowKernels& rows, float* a, const float* b, const float*, size_t n) {
         rows.gelu_tanh(b, n, a);
       }},
  };
  return operations;
}

std::vector<float> RunScalar(const Operation& operation, std::vector<float> a,
                             const std::vector<float>& b, const std::vector<float>& c) {
  operation.run(kScalarRows, a.data(), b.data(), c.data(), a.size());
  return a;
}

TEST(RowsTest, EveryLengthAndAlignmentGivesTheScalarBits) {
  constexpr uint64_t kSeed = 11;
  SplitMix64 random(kSeed);
  for (const Operation& operation : Operations()) {
    for (size_t n = operation.min_length; n <= kMaxLength; n += operation.multiple) {
      const std::vector<float> a = RandomRow(random, n), b = RandomRow(random, n),
                               c = RandomRow(random, n);
      const std::vector<float> expected = RunScalar(operation, a, b, c);
      for (const RowKernels* rows : SupportedRows()) {
        for (size_t offset = 0; offset < kMaxOffset; ++offset) {
          GuardedRow row_a(a, offset), row_b(b, (offset * 5 + 3) % kMaxOffset),
              row_c(c, (offset * 7 + 1) % kMaxOffset);
          operation.run(*rows, row_a.data(), row_b.data(), row_c.data(), n);
          ASSERT_TRUE(n == 0 || std::memcmp(row_a.data(), expected.data(), n * sizeof(float)) == 0)
              << operation.name << ", " << rows->isa << ", n " << n << ", offset " << offset
              << ", seed " << kSeed;
          ASSERT_TRUE(row_a.guards_hold()) << operation.name << ", " << rows->isa << ", n " << n;
          ASSERT_EQ(row_b.values(), b);
          ASSERT_EQ(row_c.values(), c);
        }
      }
    }
  }
}

TEST(RowsTest, LongAndHostileRowsGiveTheScalarBits) {
  constexpr uint64_t kSeed = 12;
  SplitMix64 random(kSeed);
  for (const Operation& operation : Operations()) {
    for (const double width : {1e-42, 1e-20, 1.0, 1e4, 1e25}) {
      for (const size_t n : {100u, 576u, 1538u}) {
        std::vector<float> a = RandomRow(random, n, width), b = RandomRow(random, n, width),
                           c = RandomRow(random, n, 2);
        a[n / 2] = b[n / 3] = c[n / 5] = -0.0f;
        a[n / 7] = b[n / 6] = 1e-45f;
        const std::vector<float> expected = RunScalar(operation, a, b, c);
        for (const RowKernels* rows : SupportedRows()) {
          std::vector<float> actual = a;
          operation.run(*rows, actual.data(), b.data(), c.data(), n);
          for (size_t i = 0; i < n; ++i) {
            if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
            ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
                << operation.name << ", " << rows->isa << ", width " << width << ", n " << n
                << ", i " << i << ", seed " << kSeed;
          }
        }
      }
    }
  }
}

TEST(RowsTest, RmsNormIsThatOfItsDefinition) {
  constexpr size_t kN = 576;
  SplitMix64 random(13);
  const std::vector<float> x = RandomRow(random, kN), weight = RandomRow(random, kN);
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  const double r = 1 / std::sqrt(sum / kN + 1e-5);
  std::vector<float> y(kN);
  kScalarRows.rms_norm(x.data(), weight.data(), kN, 1e-5f, y.data());
  for (size_t i = 0; i < kN; ++i) EXPECT_NEAR(y[i], x[i] * r * weight[i], 2e-6);
}

// The order of rule N9, spelt out independently of the vector code.
TEST(RowsTest, RmsNormSumsInTheOneOrder) {
  for (const size_t n : {1u, 15u, 16u, 50u, 576u}) {
    SplitMix64 random(n);
    const std::vector<float> x = RandomRow(random, n), ones(n, 1.0f);
    float lane[16] = {};
    for (size_t i = 0; i < n; ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    }
    const float r = 1.0f / std::sqrt(lane[0] / static_cast<float>(n) + 1e-6f);
    std::vector<float> y(n);
    kScalarRows.rms_norm(x.data(), ones.data(), n, 1e-6f, y.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], x[i] * r) << n;
  }
}

TEST(RowsTest, RopeTurnsItsPairs) {
  const float c = 0.6f, s = 0.8f;
  const std::vector<float> cos = {c, 1}, sin = {s, 0};
  std::vector<float> interleaved = {1, 2, 3, 4}, neox = {1, 3, 2, 4};
  kScalarRows.rope_interleaved(interleaved.data(), cos.data(), sin.data(), 4);
  kScalarRows.rope_neox(neox.data(), cos.data(), sin.data(), 4);
  const float a = std::fma(1.0f, c, -(2.0f * s)), b = std::fma(1.0f, s, 2.0f * c);
  EXPECT_EQ(interleaved, (std::vector<float>{a, b, 3, 4}));
  EXPECT_EQ(neox, (std::vector<float>{a, 3, b, 4}));
}

TEST(RowsTest, AllFiniteFindsEveryBadPlace) {
  for (const RowKernels* rows : SupportedRows()) {
    for (size_t n = 1; n <= 40; ++n) {
      std::vector<float> x(n, std::numeric_limits<float>::max());
      EXPECT_TRUE(rows->all_finite(x.data(), n));
      for (size_t i = 0; i < n; ++i) {
        for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
          x[i] = bad;
          EXPECT_FALSE(rows->all_finite(x.data(), n)) << rows->isa << ", n " << n << ", i " << i;
        }
        x[i] = -0.0f;
      }
    }
  }
}

TEST(RowsTest, LogSumExpAndSoftmaxAreAccurate) {
  SplitMix64 random(14);
  for (const double width : {1e-3, 1.0, 30.0, 1e4, 1e30}) {
    const std::vector<float> x = RandomRow(random, 5000, width);
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float value : x) sum += std::exp(value - max);
    const double exact = max + std::log(sum);
    const float actual = SupportedRows().back()->log_sum_exp(x.data(), x.size());
    EXPECT_NEAR(actual, exact, 1.2e-7 * std::max(1.0, std::fabs(exact)) + 1e-6) << width;

    std::vector<float> probability = x;
    SupportedRows().back()->softmax(probability.data(), probability.size());
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(probability[i], std::exp(x[i] - max) / sum, 1e-6);
      total += probability[i];
    }
    EXPECT_NEAR(total, 1, 1e-5);
  }
  const float one = -7.5f;
  EXPECT_EQ(kScalarRows.log_sum_exp(&one, 1), one);
}

}  // namespace
}  // namespace kvern::compute
