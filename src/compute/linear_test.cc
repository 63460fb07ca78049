// Every instruction set against a reference written from docs/numerics.md over the file's own
// blocks: no packing, no tiles, one output at a time.
#include "compute/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
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
      std::copy_n(block.qs, 32, w.q);
      return w;
    }
    default: {
      const auto block = Read<BlockQ6_K>(row, b / 8);
      const uint32_t half = b % 8 / 4, sub = b % 4;
      WeightBlock w;
      w.d = HalfToFloat(block.d);
      std::copy_n(&block.scales[b % 8 * 2], 2, w.half_scale);
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

PackedMatrix Pack(QuantType type, uint32_t rows, uint32_t cols,
                  const std::vector<std::byte>& source) {
  auto matrix = PackedMatrix::Create(type, rows, cols);
  EXPECT_TRUE(matrix.ok());
  matrix->PackTiles(source.data(), 0, matrix->num_tiles());
  return std::move(*matrix);
}

// How the outputs of a multiplication lie in memory.
struct Placement {
  uint32_t tile_tokens = kTokenTile;  // at most, in a tile
  uint32_t task_row_tiles = 1000;     // at most, in a task
  size_t margin = 0;                  // floats before the first output, so that it is not aligned
  size_t gap = 0;                     // floats between the rows of tokens
};

constexpr float kGuard = 12345.0f;

// The rows of all tokens; checks that nothing else was written.
std::vector<float> MultiplyAll(const Isa& isa, const PackedMatrix& w, const std::vector<float>& x,
                               const Placement& placement) {
  const uint32_t cols = w.cols(), num_tokens = static_cast<uint32_t>(x.size() / cols);
  const size_t lanes = size_t{w.num_tiles()} * kRowTile, stride = lanes + placement.gap;
  std::vector<float> memory(placement.margin + num_tokens * stride + kRowTile, kGuard);
  float* const out = memory.data() + placement.margin;
  for (uint32_t first = 0; first < num_tokens; first += placement.tile_tokens) {
    const uint32_t count = std::min(placement.tile_tokens, num_tokens - first);
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
    for (uint32_t i = 0; i < w.num_tiles(); i += placement.task_row_tiles) {
      isa.linear->multiply[FormatIndex(w.format())](
          {.weights = w.tile(i),
           .tile_bytes = w.tile_bytes(),
           .num_row_tiles = std::min(placement.task_row_tiles, w.num_tiles() - i),
           .cols = cols,
           .activations = tile.data(),
           .num_tokens = count,
           .out = out + first * stride + size_t{i} * kRowTile,
           .out_stride = stride});
    }
  }
  std::vector<float> rows;
  for (uint32_t t = 0; t < num_tokens; ++t) {
    float* const row = out + t * stride;
    rows.insert(rows.end(), row, row + w.rows());
    std::fill_n(row, lanes, kGuard);
  }
  EXPECT_EQ(std::count(memory.begin(), memory.end(), kGuard), memory.size()) << "a stray write";
  return rows;
}

std::vector<float> MultiplyAllReference(QuantType type, uint32_t rows, uint32_t cols,
                                        const std::vector<std::byte>& source,
                                        const std::vector<float>& x) {
  std::vector<float> out;
  for (size_t t = 0; t < x.size() / cols; ++t) {
    for (uint32_t r = 0; r < rows; ++r) {
      out.push_back(
          MultiplyReference(type, &source[r * (source.size() / rows)], &x[t * cols], cols));
    }
  }
  return out;
}

testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << ", not " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return testing::AssertionFailure() << "output " << i << " is " << a[i] << ", not " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

std::string Describe(const Isa& isa, QuantType type, uint32_t rows, uint32_t cols) {
  return std::string(isa.name) + " " + std::string(GetQuantTraits(type).name) + ", " +
         std::to_string(rows) + " rows, " + std::to_string(cols) + " inputs";
}

TEST(Linear, EveryIsaTypeAndTileEqualsTheReferenceBitForBit) {
  constexpr uint32_t kRows = 21, kTokens = kTokenTile + 3;
  for (const WeightFormat& format : WeightFormats()) {
    for (const uint32_t cols : {256u, 512u}) {
      const auto source = RandomWeights(format.type, kRows, cols, /*seed=*/cols);
      const PackedMatrix matrix = Pack(format.type, kRows, cols, source);
      const auto x = RandomActivations(kTokens, cols, /*seed=*/3);
      const auto expected = MultiplyAllReference(format.type, kRows, cols, source, x);
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (uint32_t tile = 1; tile <= kTokenTile; ++tile) {
          ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, x, {.tile_tokens = tile}), expected))
              << Describe(isa, format.type, kRows, cols) << ", tiles of " << tile;
        }
      }
    }
  }
}

// From one token to a few tiles of them, in the tiles that the model makes.
TEST(Linear, EveryNumberOfTokens) {
  constexpr uint32_t kRows = 16, kTokens = 68, kCols = 256;
  for (const WeightFormat& format : WeightFormats()) {
    const auto source = RandomWeights(format.type, kRows, kCols, /*seed=*/8);
    const PackedMatrix matrix = Pack(format.type, kRows, kCols, source);
    const auto x = RandomActivations(kTokens, kCols, /*seed=*/9);
    const auto expected = MultiplyAllReference(format.type, kRows, kCols, source, x);
    for (const Isa& isa : Isas()) {
      if (!isa.supported()) continue;
      for (uint32_t tokens = 1; tokens <= kTokens; ++tokens) {
        const std::vector<float> some(x.begin(), x.begin() + tokens * kCols);
        const std::vector<float> want(expected.begin(), expected.begin() + tokens * kRows);
        ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, some, {}), want))
            << Describe(isa, format.type, kRows, kCols) << ", " << tokens << " tokens";
      }
    }
  }
}

// Few and many rows, cut into tasks in several ways, with outputs at every alignment.
TEST(Linear, EveryNumberOfRowsAndPlacement) {
  constexpr uint32_t kCols = 256;
  for (const WeightFormat& format : WeightFormats()) {
    size_t turn = 0;
    for (const uint32_t rows : {1u, 15u, 16u, 17u, 33u, 64u, 95u, 130u}) {
      const auto source = RandomWeights(format.type, rows, kCols, /*seed=*/rows);
      const PackedMatrix matrix = Pack(format.type, rows, kCols, source);
      const auto x = RandomActivations(kTokenTile + 2, kCols, /*seed=*/rows);
      const auto expected = MultiplyAllReference(format.type, rows, kCols, source, x);
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (const uint32_t task_row_tiles : {1u, 2u, 3u, 5u, 1000u}) {
          const size_t margin = turn++ % 16, gap = turn % 5;
          for (const uint32_t tile : {1u, kTokenTile}) {
            ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, x, {tile, task_row_tiles, margin, gap}),
                                 expected))
                << Describe(isa, format.type, rows, kCols) << ", tasks of " << task_row_tiles
                << ", margin " << margin << ", gap " << gap << ", tiles of " << tile;
          }
        }
      }
    }
  }
}

// Every number of blocks that a type allows.
TEST(Linear, EveryNumberOfInputs) {
  constexpr uint32_t kRows = 18;
  for (const WeightFormat& format : WeightFormats()) {
    if (!format.quantized_input) continue;
    const uint32_t block = GetQuantTraits(format.type).block_elements;
    for (uint32_t cols = block; cols <= 12 * block && cols <= 1024; cols += block) {
      const auto source = RandomWeights(format.type, kRows, cols, /*seed=*/cols);
      const PackedMatrix matrix = Pack(format.type, kRows, cols, source);
      std::vector<float> x = RandomActivations(5, cols, /*seed=*/cols);
      const auto expected = MultiplyAllReference(format.type, kRows, cols, source, x);
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (const uint32_t tile : {1u, 5u}) {
          ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, x, {.tile_tokens = tile}), expected))
              << Describe(isa, format.type, kRows, cols) << ", tiles of " << tile;
        }
      }
    }
  }
}

// The largest sums of products that a block can have, of either sign, and their neighbours: they
// must neither saturate nor wrap.
TEST(Linear, ExtremeWeightsTimesExtremeActivations) {
  constexpr uint32_t kRows = 16, kCols = 512;
  std::vector<float> x;
  for (const uint32_t period : {0u, 1u, 2u, 4u, 8u, 16u, 32u}) {  // 0: no change of sign
    for (const float sign : {1.0f, -1.0f}) {
      for (uint32_t k = 0; k < kCols; ++k) {
        x.push_back(period != 0 && k / period % 2 == 1 ? -sign : sign);
      }
    }
  }
  for (const WeightFormat& format : WeightFormats()) {
    if (!format.quantized_input) continue;
    const QuantTraits& traits = GetQuantTraits(format.type);
    std::vector<std::byte> source(size_t{kRows} * kCols / traits.block_elements *
                                  traits.block_bytes);
    const size_t row_bytes = source.size() / kRows;
    constexpr uint8_t kPatterns[kRows] = {0xFF, 0x00, 0x80, 0x7F, 0x0F, 0xF0, 0x88, 0x77,
                                          0x55, 0xAA, 0xEE, 0x11, 0x81, 0x7E, 0x08, 0x01};
    for (size_t i = 0; i < source.size(); ++i) source[i] = std::byte{kPatterns[i / row_bytes]};
    for (size_t at = 0; at < source.size(); at += traits.block_bytes) {
      for (const size_t offset : HalfOffsets(format.type)) PutHalf(&source[at + offset], 1.0f);
    }
    const PackedMatrix matrix = Pack(format.type, kRows, kCols, source);
    const auto expected = MultiplyAllReference(format.type, kRows, kCols, source, x);
    for (const Isa& isa : Isas()) {
      if (!isa.supported()) continue;
      for (uint32_t tile = 1; tile <= kTokenTile; ++tile) {
        ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, x, {.tile_tokens = tile}), expected))
            << Describe(isa, format.type, kRows, kCols) << ", tiles of " << tile;
      }
    }
  }
}

TEST(Linear, FloatWeightsTakeAnyNumberOfInputs) {
  constexpr uint32_t kRows = 37, kTokens = kTokenTile + 1;
  for (const QuantType type : {QuantType::kF32, QuantType::kF16, QuantType::kBf16}) {
    for (uint32_t cols = 1; cols <= 40; ++cols) {
      const auto source = RandomWeights(type, kRows, cols, /*seed=*/cols);
      const PackedMatrix matrix = Pack(type, kRows, cols, source);
      std::vector<float> x(kTokens * cols);
      std::mt19937 random(cols);
      for (float& value : x) value = std::normal_distribution<float>()(random);
      const auto expected = MultiplyAllReference(type, kRows, cols, source, x);
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (const uint32_t tile : {1u, 2u, 3u, kTokenTile}) {
          ASSERT_TRUE(SameBits(MultiplyAll(isa, matrix, x, {.tile_tokens = tile}), expected))
              << Describe(isa, type, kRows, cols) << ", tiles of " << tile;
        }
      }
    }
  }
}

// Quantised tokens: the integers and factors of the definition, from rows at every alignment.
TEST(Linear, QuantizedActivationsAreThoseOfTheDefinition) {
  constexpr uint32_t kCols = 96, kTokens = 3;
  std::vector<float> x = RandomActivations(kTokens, kCols, /*seed=*/21);
  // Halfway cases round to even: products with 127 / 127 are exact.
  for (uint32_t k = 0; k < 32; ++k) x[kCols + 64 + k] = static_cast<float>(k) - 15.5f;
  x[kCols + 64] = 127.0f;
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (size_t margin = 0; margin < 16; ++margin) {
      std::vector<float> row(margin + kCols);
      std::vector<std::byte> tile(QuantizedTileBytes(kTokens, kCols));
      for (uint32_t t = 0; t < kTokens; ++t) {
        std::copy_n(&x[t * kCols], kCols, &row[margin]);
        EXPECT_TRUE(isa.linear->quantize(&row[margin], kCols, {tile.data(), kTokens, t}));
      }
      for (uint32_t b = 0; b < kCols / 32; ++b) {
        const std::byte* block = &tile[b * 48 * kTokens];
        for (uint32_t t = 0; t < kTokens; ++t) {
          const ReferenceBlock expected = QuantizeReference(&x[t * kCols + 32 * b]);
          int32_t sums[2] = {};
          for (uint32_t k = 0; k < 32; ++k) {
            ASSERT_EQ(static_cast<int8_t>(block[32 * t + k]), expected.q[k]) << isa.name;
            sums[k / 16] += expected.q[k];
          }
          const std::byte* rest = block + 32 * kTokens;
          EXPECT_EQ(Read<uint32_t>(rest, t), std::bit_cast<uint32_t>(expected.d)) << isa.name;
          EXPECT_EQ(Read<uint32_t>(rest, kTokens + t), std::bit_cast<uint32_t>(expected.s))
              << isa.name;
          EXPECT_EQ(std::memcmp(rest + 8 * (kTokens + t), sums, 8), 0) << isa.name;
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
