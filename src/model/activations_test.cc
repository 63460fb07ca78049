#include "model/activations.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace kvern::model {
namespace {

using compute::PackedMatrix;
using compute::QuantType;

const compute::Isa& BestIsa() { return **compute::SelectIsa("auto"); }

// Random, of the values of a Q8_0 or F32 matrix.
PackedMatrix RandomMatrix(QuantType type, uint32_t rows, uint32_t cols) {
  SplitMix64 random(rows + cols);
  auto matrix = std::move(PackedMatrix::Create(type, rows, cols)).value();
  const compute::QuantTraits& traits = compute::GetQuantTraits(type);
  std::vector<std::byte> source(size_t{rows} * cols / traits.block_elements * traits.block_bytes);
  for (size_t i = 0; i < source.size(); i += traits.block_bytes) {
    if (type == QuantType::kF32) {
      const auto value = static_cast<float>(random.Uniform() - 0.5);
      std::memcpy(&source[i], &value, sizeof(value));
    } else {
      for (size_t b = 0; b < traits.block_bytes; ++b) source[i + b] = std::byte(random.Below(256));
      source[i] = std::byte{0x11}, source[i + 1] = std::byte{0x2C};  // a scale of about 1/16
    }
  }
  matrix.PackTiles(source.data(), 0, matrix.num_tiles());
  return matrix;
}

std::vector<float> RandomInputs(size_t count) {
  SplitMix64 random(count);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random.Uniform() * 2 - 1);
  return x;
}

// Rows [num_tokens][padded rows of weights].
std::vector<float> Multiply(ActivationBuffer& buffer, const PackedMatrix& weights,
                            std::span<const float> x) {
  const auto num_tokens = static_cast<uint32_t>(x.size() / weights.cols());
  const Activations activations(buffer, num_tokens, {&weights});
  for (uint32_t t = 0; t < num_tokens; ++t) {
    EXPECT_TRUE(activations.Pack(*BestIsa().linear, &x[size_t{t} * weights.cols()], t));
  }
  const size_t stride = weights.num_tiles() * compute::kRowTile;
  std::vector<float> out(num_tokens * stride);
  activations.Multiply(*BestIsa().linear, weights, 0, weights.num_tiles(), out.data(), stride);
  return out;
}

// Any number of tokens gives each what it gets alone, also where the tiles exceed the L2 cache.
TEST(ActivationsTest, TokensDoNotMeet) {
  for (const QuantType type : {QuantType::kF32, QuantType::kQ8_0}) {
    for (const uint32_t cols : {32u, 4096u}) {
      const PackedMatrix weights = RandomMatrix(type, 19, cols);
      const std::vector<float> x = RandomInputs(size_t{45} * cols);
      auto many = ActivationBuffer::Create(45, cols, {.quantized = true, .floats = true});
      auto one = ActivationBuffer::Create(1, cols, {.quantized = true, .floats = true});
      ASSERT_TRUE(many.ok() && one.ok());
      for (const size_t num_tokens : {1u, 7u, 8u, 9u, 45u}) {
        const auto out = Multiply(*many, weights, std::span(x).first(num_tokens * cols));
        for (size_t t = 0; t < num_tokens; ++t) {
          const auto alone = Multiply(*one, weights, std::span(x).subspan(t * cols, cols));
          EXPECT_EQ(std::memcmp(&out[t * alone.size()], alone.data(), 19 * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST(ActivationsTest, RangesOfRowsDoNotMatter) {
  const PackedMatrix weights = RandomMatrix(QuantType::kQ8_0, 70, 64);
  const std::vector<float> x = RandomInputs(20 * 64);
  auto buffer = ActivationBuffer::Create(20, 64, {.quantized = true});
  ASSERT_TRUE(buffer.ok());
  const auto whole = Multiply(*buffer, weights, x);
  const Activations activations(*buffer, 20, {&weights});
  std::vector<float> pieces(whole.size());
  for (const auto& [begin, end] : {std::pair{0u, 2u}, {2u, 2u}, {2u, 5u}}) {
    activations.Multiply(*BestIsa().linear, weights, begin, end,
                         pieces.data() + begin * compute::kRowTile,
                         weights.num_tiles() * compute::kRowTile);
  }
  EXPECT_EQ(pieces, whole);
}

// Weights of widths that no quantised input has do not quantise theirs.
TEST(ActivationsTest, OnlyTheFormsThatAreReadArePacked) {
  const PackedMatrix floats = RandomMatrix(QuantType::kF32, 16, 70);
  const PackedMatrix quantized = RandomMatrix(QuantType::kQ8_0, 16, 64);
  auto buffer = ActivationBuffer::Create(3, 70, {.quantized = true, .floats = true});
  ASSERT_TRUE(buffer.ok());
  std::vector<float> x = RandomInputs(70);
  x[3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(Activations(*buffer, 1, {&floats}).Pack(*BestIsa().linear, x.data(), 0));
  EXPECT_FALSE(Activations(*buffer, 1, {&quantized}).Pack(*BestIsa().linear, x.data(), 0));
}

// A token packed in pieces is the token packed at once.
TEST(ActivationsTest, ColumnsMayBePackedApart) {
  constexpr uint32_t kTokens = 11, kCols = 160;
  for (const QuantType type : {QuantType::kQ8_0, QuantType::kF32}) {
    const PackedMatrix weights = RandomMatrix(type, 33, kCols);
    const std::vector<float> x = RandomInputs(kTokens * kCols);
    auto buffer = ActivationBuffer::Create(kTokens, kCols, {.quantized = true, .floats = true});
    ASSERT_TRUE(buffer.ok());
    const auto whole = Multiply(*buffer, weights, x);
    auto apart = ActivationBuffer::Create(kTokens, kCols, {.quantized = true, .floats = true});
    ASSERT_TRUE(apart.ok());
    const Activations activations(*apart, kTokens, {&weights});
    for (uint32_t t = 0; t < kTokens; ++t) {
      for (const auto& [first, count] : {std::pair{96u, 64u}, {0u, 32u}, {32u, 64u}}) {
        EXPECT_TRUE(activations.PackColumns(*BestIsa().linear, &x[size_t{t} * kCols + first], t,
                                            first, count));
      }
    }
    std::vector<float> out(whole.size());
    activations.Multiply(*BestIsa().linear, weights, 0, weights.num_tiles(), out.data(),
                         weights.num_tiles() * compute::kRowTile);
    EXPECT_EQ(out, whole);
  }
}

}  // namespace
}  // namespace kvern::model
