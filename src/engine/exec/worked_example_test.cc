// The numbers that a textbook's worked example prints, and what must hold of its cache.
#include "engine/exec/worked_example.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

namespace kvern::engine {
namespace {

using compute::Isa;
using compute::KvDtype;

std::vector<const Isa*> SupportedIsas() {
  std::vector<const Isa*> result;
  for (const Isa& isa : compute::Isas()) {
    if (isa.supported()) result.push_back(&isa);
  }
  return result;
}

WorkedExample Compute(const Isa& isa, KvDtype k_dtype, KvDtype v_dtype) {
  auto example = ComputeWorkedExample(isa, k_dtype, v_dtype);
  EXPECT_TRUE(example.ok()) << example.error().message;
  return std::move(*example);
}

// To three decimals: "1.000 -inf -inf / 0.500 1.000 -inf".
std::string Printed(const Matrix& matrix) {
  std::string text;
  for (uint32_t r = 0; r < matrix.rows; ++r) {
    if (r > 0) text += " / ";
    for (uint32_t c = 0; c < matrix.cols; ++c) {
      text += fmt::format("{}{:.3f}", c > 0 ? " " : "", matrix.row(r)[c]);
    }
  }
  return text;
}

bool SameBits(const Matrix& a, const Matrix& b) {
  return a.rows == b.rows && a.cols == b.cols &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

constexpr char kPrompt[] =
    "1.000 0.000 1.000 0.000 / 0.000 1.000 1.000 0.000 / 1.000 1.000 0.000 1.000";
constexpr char kNext[] = "0.820 0.726 0.548 0.000";

TEST(WorkedExample, PrefillGivesTheNumbersOfTheText) {
  for (const Isa* isa : SupportedIsas()) {
    SCOPED_TRACE(isa->name);
    const WorkedStep step = Compute(*isa, KvDtype::kF32, KvDtype::kF32).prefill;
    EXPECT_EQ(Printed(step.inputs), kPrompt);
    EXPECT_EQ(Printed(step.queries), kPrompt);
    EXPECT_EQ(Printed(step.keys), kPrompt);
    EXPECT_EQ(Printed(step.values), kPrompt);
    EXPECT_EQ(Printed(step.scores), "1.000 -inf -inf / 0.500 1.000 -inf / 0.500 0.500 1.500");
    EXPECT_EQ(Printed(step.weights), "1.000 0.000 0.000 / 0.378 0.622 0.000 / 0.212 0.212 0.576");
    EXPECT_EQ(Printed(step.outputs),
              "1.000 0.000 1.000 0.000 / 0.378 0.622 1.000 0.000 / 0.788 0.788 0.424 0.576");
  }
}

TEST(WorkedExample, DecodeAppendsOneRowAndReadsAll) {
  for (const Isa* isa : SupportedIsas()) {
    SCOPED_TRACE(isa->name);
    const WorkedStep step = Compute(*isa, KvDtype::kF32, KvDtype::kF32).decode;
    EXPECT_EQ(Printed(step.inputs), kNext);
    EXPECT_EQ(Printed(step.queries), kNext);
    EXPECT_EQ(Printed(step.cached_keys), std::string(kPrompt) + " / " + kNext);
    EXPECT_EQ(Printed(step.cached_values), std::string(kPrompt) + " / " + kNext);

    // The formulas, in double.
    const Matrix& k = step.cached_keys;
    double scores[4] = {}, sum = 0, outputs[4] = {};
    for (uint32_t t = 0; t < 4; ++t) {
      for (uint32_t d = 0; d < 4; ++d) scores[t] += double{step.queries.row(0)[d]} * k.row(t)[d];
      scores[t] /= std::sqrt(4.0);
      sum += std::exp(scores[t]);
    }
    for (uint32_t t = 0; t < 4; ++t) {
      const double weight = std::exp(scores[t]) / sum;
      EXPECT_NEAR(step.scores.row(0)[t], scores[t], 1e-6);
      EXPECT_NEAR(step.weights.row(0)[t], weight, 1e-6);
      for (uint32_t d = 0; d < 4; ++d) outputs[d] += weight * step.cached_values.row(t)[d];
    }
    for (uint32_t d = 0; d < 4; ++d) EXPECT_NEAR(step.outputs.row(0)[d], outputs[d], 1e-6);
  }
}

TEST(WorkedExample, IsTheSameBitsOnEveryInstructionSet) {
  for (const auto& k_dtype : compute::KvDtypes()) {
    for (const auto& v_dtype : compute::KvDtypes()) {
      const WorkedExample scalar = Compute(compute::Isas()[0], k_dtype.dtype, v_dtype.dtype);
      for (const Isa* isa : SupportedIsas()) {
        SCOPED_TRACE(fmt::format("{} K {} V {}", isa->name, k_dtype.name, v_dtype.name));
        const WorkedExample other = Compute(*isa, k_dtype.dtype, v_dtype.dtype);
        for (const auto step : {&WorkedExample::prefill, &WorkedExample::decode}) {
          const WorkedStep &a = scalar.*step, &b = other.*step;
          EXPECT_TRUE(SameBits(a.scores, b.scores));
          EXPECT_TRUE(SameBits(a.weights, b.weights));
          EXPECT_TRUE(SameBits(a.outputs, b.outputs));
          EXPECT_TRUE(SameBits(a.cached_keys, b.cached_keys));
          EXPECT_TRUE(SameBits(a.cached_values, b.cached_values));
          EXPECT_EQ(a.block, b.block);
        }
      }
    }
  }
}

// For every dtype: the block is zeros but for the rows so far, and a later row moves no earlier
// one.
TEST(WorkedExample, DecodeGrowsTheCacheByOneRowAndChangesNoByteOfTheOthers) {
  for (const auto& traits : compute::KvDtypes()) {
    SCOPED_TRACE(traits.name);
    const WorkedExample example = Compute(compute::Isas()[0], traits.dtype, traits.dtype);
    const std::vector<std::byte>&before = example.prefill.block, &after = example.decode.block;
    ASSERT_EQ(before.size(), example.layout.block_bytes());
    const auto rows_of = [&](const std::vector<std::byte>& block, uint32_t num_rows) {
      std::vector<std::byte> rows(block.size());
      example.layout.CopyRows(rows.data(), block.data(), num_rows);
      return rows;
    };
    EXPECT_EQ(rows_of(before, 3), before);
    EXPECT_EQ(rows_of(after, 4), after);
    EXPECT_EQ(rows_of(after, 3), before);
    EXPECT_NE(after, before);
    EXPECT_EQ(example.prefill.cached_keys.rows, 3u);
    EXPECT_EQ(example.decode.cached_keys.rows, 4u);
  }
}

TEST(WorkedExample, DecodeFromTheCacheEqualsComputingEverythingAgain) {
  for (const Isa* isa : SupportedIsas()) {
    for (const auto& traits : compute::KvDtypes()) {
      SCOPED_TRACE(fmt::format("{} {}", isa->name, traits.name));
      const WorkedExample example = Compute(*isa, traits.dtype, traits.dtype);
      const Matrix &cached = example.decode.outputs, &all = example.recomputed.outputs;
      EXPECT_EQ(std::memcmp(cached.row(0), all.row(3), 4 * sizeof(float)), 0);
      EXPECT_EQ(example.recomputed.block, example.decode.block);
    }
  }
}

// Ones and zeros are exact in every dtype; what the fourth token stores is rounded.
TEST(WorkedExample, ReadsKAndVAsStored) {
  const WorkedExample exact = Compute(compute::Isas()[0], KvDtype::kF32, KvDtype::kF32);
  const WorkedExample half = Compute(compute::Isas()[0], KvDtype::kF16, KvDtype::kF16);
  EXPECT_TRUE(SameBits(half.prefill.outputs, exact.prefill.outputs));
  EXPECT_FALSE(SameBits(half.decode.outputs, exact.decode.outputs));
  EXPECT_EQ(half.decode.cached_values.row(3)[0], 0.81982421875f);  // 0.82 in binary16
  EXPECT_EQ(half.decode.values.row(0)[0], 0.82f);
}

TEST(WorkedExample, TakesOneBlockAndGivesItBack) {
  const WorkedExample example = Compute(compute::Isas()[0], KvDtype::kF32, KvDtype::kF32);
  const size_t block = example.layout.block_bytes();
  EXPECT_EQ(block, 16u * (4 * 4 + 16 * 4));  // V rows pad from 4 to 16 elements
  for (const kv::StateCounts& bytes : {example.pool_before, example.pool_after}) {
    EXPECT_EQ(bytes.active, 0u);
    EXPECT_EQ(bytes.free, 2 * block);
  }
  for (const kv::StateCounts& bytes : {example.prefill.pool_bytes, example.decode.pool_bytes}) {
    EXPECT_EQ(bytes.active, block);
    EXPECT_EQ(bytes.free, block);
  }
}

}  // namespace
}  // namespace kvern::engine
