// Every instruction set against a reference written from docs/numerics.md over the file's own
// blocks: no packing, no tiles, one output at a time.
#include "compute/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "compute/isa.h"
#include "compute/packed_matrix.h"
#include "compute/test_weights.h"

namespace kvern::compute {
namespace {

struct ReferenceBlock {
  int q[32];
  float d, s;
};

ReferenceBlock QuantizeReference(const float* x) {
  ReferenceBlock block{};
  float largest = 0;
  for (int k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(x[k]));
  if (largest < 0x1p-100f) return block;
  block.d = largest / 127.0f;
  const float inverse = 127.0f / largest;
  int sum = 0;
  for (int k = 0; k < 32; ++k) sum += block.q[k] = static_cast<int>(std::nearbyint(x[k] * inverse));
  block.s = block.d * static_cast<float>(sum);
  return block;
}

// The integers, and the factors of one 32-wide block of one row.
struct WeightBlock {
  int q[32];
  int half_scale[2] = {1, 1};
  float d, m = 0;
  bool has_min = false;
};

template <typename Block>
Block Read(const std::byte* p, size_t index) {
  Block block;
  std::memcpy(&block, p + index * sizeof block, sizeof block);
  return block;
}

template <typename Block>
WeightBlock ReadPairs(const Block& block, int offset) {
  WeightBlock w;
  w.d = HalfToFloat(block.d);
  for (int k = 0; k < 32; ++k) {
    int q = k < 16 ? block.qs[k] & 15 : block.qs[k - 16] >> 4;
    if constexpr (requires { block.qh; }) q |= (block.qh[k / 8] >> (k % 8) & 1) << 4;
    w.q[k] = q - offset;
  }
  if constexpr (requires { block.m; }) {
    w.m = HalfToFloat(block.m);
    w.has_min = true;
  }
  return w;
}

template <typename Block>
WeightBlock ReadScaleMin(const Block& block, uint32_t sub) {
  WeightBlock w;
  const ScaleMin scale = UnpackScaleMin(block.scales, sub);
  w.d = HalfToFloat(block.d) * static_cast<float>(scale.scale);
  w.m = -(HalfToFloat(block.dmin) * static_cast<float>(scale.min));
  w.has_min = true;
  for (uint32_t k = 0; k < 32; ++k) {
    w.q[k] = block.qs[sub / 2 * 32 + k] >> (sub % 2 * 4) & 15;
    if constexpr (requires { block.qh; }) w.q[k] |= (block.qh[k] >> sub & 1) << 4;
  }
  return w;
}

WeightBlock ReadWeights(QuantType type, const std::byte* row, size_t b) {
  switch (type) {
    case QuantType::kQ4_0:
      return ReadPairs(Read<BlockQ4_0>(row, b), 8);
    case QuantType::kQ4_1:
      return ReadPairs(Read<BlockQ4_1>(row, b), 0);
    case QuantType::kQ5_0:
      return ReadPairs(Read<BlockQ5_0>(row, b), 16);
    case QuantType::kQ5_1:
      return ReadPairs(Read<BlockQ5_1>(row, b), 0);
    case QuantType::kQ4_K:
      return ReadScaleMin(Read<BlockQ4_K>(row, b / 8), b % 8);
    case QuantType::kQ5_K:
      return ReadScaleMin(Read<BlockQ5_K>(row, b / 8), b % 8);
    case QuantType::kQ8_0: {
      const auto block = Read<BlockQ8_0>(row, b);
      WeightBlock w;
      w.d = HalfToFloat(block.d);
      for (int k = 0; k < 32; ++k) w.q[k] = block.qs[k];
      return w;
    }
    default: {
      const auto block = Read<BlockQ6_K>(row, b / 8);
      const uint32_t half = b % 8 / 4, sub = b % 4;
      WeightBlock w;
      w.d = HalfToFloat(block.d);
      for (uint32_t i = 0; i < 2; ++i) w.half_scale[i] = block.scales[b % 8 * 2 + i];
      for (uint32_t k = 0; k < 32; ++k) {
        const int low = block.ql[64 * half + 32 * (sub % 2) + k] >> (sub / 2 * 4) & 15;
        w.q[k] = (low | (block.qh[32 * half + k] >> (2 * sub) & 3) << 4) - 32;
      }
      return w;
    }
  }
}

float MultiplyReference(QuantType type, const std::byte* row, const float* x, uint32_t cols) {
  float acc = 0;
  if (!FindWeightFormat(type)->quantized_input) {
    std::vector<float> w(cols);
    const QuantTraits& traits = GetQuantTraits(type);
    Dequantize(type, {row, size_t{cols} * traits.block_bytes}, w);
    for (uint32_t k = 0; k < cols; ++k) acc = std::fma(w[k], x[k], acc);
    return acc;
  }
  for (uint32_t b = 0; b < cols / 32; ++b) {
    const ReferenceBlock a = QuantizeReference(x + 32 * b);
    const WeightBlock w = ReadWeights(type, row, b);
    int dot = 0;
    for (int k = 0; k < 32; ++k) dot += w.half_scale[k / 16] * w.q[k] * a.q[k];
    acc = std::fma(w.d * a.d, static_cast<float>(dot), acc);
    if (w.has_min) acc = std::fma(w.m, a.s, acc);
  }
  return acc;
}

std::vector<float> RandomActivations(uint32_t tokens, uint32_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{tokens} * cols);
  for (float& value : x) value = normal(random);
  // Hostile blocks: zeros, −0, subnormals, one dominant value, huge values, the zero-block border.
  for (uint32_t k = 0; k < 32; ++k) {
    x[k] = k % 2 ? -0.0f : 0.0f;
    x[32 + k] = 1e-40f * static_cast<float>(k);
    if (k > 0) x[64 + k] *= 1e-6f;
    if (tokens > 1) x[cols + k] *= 1e30f;
    if (tokens > 2) x[2 * cols + k] *= 0x1p-100f;
  }
  return x;
}

// All tokens in tiles of at most `tile_tokens`.
std::vector<float> MultiplyAll(const Isa& isa, const PackedMatrix& w, const std::vector<float>& x,
                               uint32_t tile_tokens) {
  const uint32_t cols = w.cols(), num_tokens = static_cast<uint32_t>(x.size() / cols);
  const size_t stride = w.num_tiles() * kRowTile;
  std::vector<float> out(num_tokens * stride, NAN);
  for (uint32_t first = 0; first < num_tokens; first += tile_tokens) {
    const uint32_t count = std::min(tile_tokens, num_tokens - first);
    std::vector<std::byte> tile(
        std::max(QuantizedTileBytes(count, cols), FloatTileBytes(count, cols)));
    for (uint32_t t = 0; t < count; ++t) {
      const float* row = &x[size_t{first + t} * cols];
      const TileSlot slot = {tile.data(), count, t};
      if (w.format().quantized_input) {
        EXPECT_TRUE(isa.linear->quantize(row, cols, slot));
      } else {
        isa.linear->pack_floats(row, cols, slot);
      }
    }
    isa.linear->multiply[FormatIndex(w.format())]({.weights = w.tile(0),
                                                   .tile_bytes = w.tile_bytes(),
                                                   .num_row_tiles = w.num_tiles(),
                                                   .cols = cols,
                                                   .activations = tile.data(),
                                                   .num_tokens = count,
                                                   .out = &out[first * stride],
                                                   .out_stride = stride});
  }
  return out;
}

TEST(Linear, EveryIsaTypeAndTileEqualsTheReferenceBitForBit) {
  constexpr uint32_t kRows = 21, kTokens = 11;
  for (const WeightFormat& format : WeightFormats()) {
    for (const uint32_t cols : {256u, 512u}) {
      const auto source = RandomWeights(format.type, kRows, cols, /*seed=*/cols);
      auto matrix = PackedMatrix::Create(format.type, kRows, cols);
      ASSERT_TRUE(matrix.ok());
      matrix->PackTiles(source.data(), 0, matrix->num_tiles());
      const auto x = RandomActivations(kTokens, cols, /*seed=*/3);
      const size_t row_bytes = source.size() / kRows, stride = matrix->num_tiles() * kRowTile;
      std::vector<float> expected(kTokens * stride);
      for (uint32_t t = 0; t < kTokens; ++t) {
        for (uint32_t r = 0; r < kRows; ++r) {
          expected[t * stride + r] =
              MultiplyReference(format.type, &source[r * row_bytes], &x[t * cols], cols);
        }
      }
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (uint32_t tile = 1; tile <= kTokenTile; ++tile) {
          const auto out = MultiplyAll(isa, *matrix, x, tile);
          for (uint32_t t = 0; t < kTokens; ++t) {
            ASSERT_EQ(std::memcmp(&out[t * stride], &expected[t * stride], kRows * 4), 0)
                << isa.name << " " << GetQuantTraits(format.type).name << " tile " << tile
                << " token " << t;
          }
        }
      }
    }
  }
}

TEST(Linear, FloatWeightsTakeAnyNumberOfInputs) {
  for (const QuantType type : {QuantType::kF32, QuantType::kF16, QuantType::kBf16}) {
    for (const uint32_t cols : {1u, 20u, 33u}) {
      const auto source = RandomWeights(type, 5, cols, /*seed=*/cols);
      auto matrix = PackedMatrix::Create(type, 5, cols);
      ASSERT_TRUE(matrix.ok());
      matrix->PackTiles(source.data(), 0, 1);
      std::vector<float> x(3 * cols);
      std::mt19937 random(cols);
      for (float& value : x) value = std::normal_distribution<float>()(random);
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        const auto out = MultiplyAll(isa, *matrix, x, 3);
        for (uint32_t t = 0; t < 3; ++t) {
          for (uint32_t r = 0; r < 5; ++r) {
            const float expected =
                MultiplyReference(type, &source[r * source.size() / 5], &x[t * cols], cols);
            ASSERT_EQ(std::memcmp(&out[t * 16 + r], &expected, 4), 0) << isa.name;
          }
        }
      }
    }
  }
}

TEST(Linear, NonFiniteInputsAreReportedAndLeaveZeros) {
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> x(64, 1.0f);
      x[37] = bad;
      std::vector<std::byte> tile(QuantizedTileBytes(1, 64), std::byte{0xFF});
      EXPECT_FALSE(isa.linear->quantize(x.data(), 64, {tile.data(), 1, 0}));
      for (const std::byte byte : tile) ASSERT_EQ(byte, std::byte{0}) << isa.name;
    }
  }
}

}  // namespace
}  // namespace kvern::compute
