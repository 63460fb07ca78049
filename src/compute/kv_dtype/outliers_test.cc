// What it costs that channels of K are many times larger than the others: q8r, whose rotation
// spreads them over the head, beside llama.cpp's q8_0, which has a scale for each 32 numbers and
// rotates nothing. Errors are those of attention's outputs; keys, values and queries are all
// quantised, as both do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "base/float16.h"
#include "compute/attention.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"

namespace kvern::compute {
namespace {

constexpr uint32_t kNumKeys = 4 * kChunkTokens;
constexpr uint32_t kNumQueries = kMaxChunkQueries;
constexpr uint64_t kNumInputs = 16;

using Matrix = std::vector<float>;  // [rows][head_dim]

struct AttentionInput {
  uint32_t head_dim;
  Matrix keys, values, queries;

  std::span<const float> Key(uint32_t t) const { return Row(keys, t); }
  std::span<const float> Value(uint32_t t) const { return Row(values, t); }
  std::span<const float> Query(uint32_t i) const { return Row(queries, i); }

 private:
  std::span<const float> Row(const Matrix& matrix, uint32_t i) const {
    return std::span(matrix).subspan(size_t{i} * head_dim, head_dim);
  }
};

// Normal numbers, but `num_outliers` channels of K are 8 to 20 times as large: on all tokens, as in
// models.
AttentionInput MakeInput(uint32_t head_dim, uint32_t num_outliers, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto matrix = [&](uint32_t rows) {
    Matrix m(size_t{rows} * head_dim);
    for (float& x : m) x = normal(random);
    return m;
  };
  AttentionInput input = {.head_dim = head_dim,
                          .keys = matrix(kNumKeys),
                          .values = matrix(kNumKeys),
                          .queries = matrix(kNumQueries)};
  std::vector<float> sizes(head_dim, 1.0f);
  for (uint32_t i = 0; i < num_outliers; ++i) {
    sizes[i] = 8 + 12 * static_cast<float>(random() % 1024) / 1023;
  }
  std::shuffle(sizes.begin(), sizes.end(), random);
  for (size_t i = 0; i < input.keys.size(); ++i) input.keys[i] *= sizes[i % head_dim];
  return input;
}

// llama.cpp's q8_0: blocks of 32 along the head (the last may be shorter, where llama.cpp has
// none), a scale in f16 of the largest magnitude / 127, numbers rounded by the scale before its
// rounding.
std::vector<double> BlockQuantized(std::span<const float> row) {
  std::vector<double> result;
  for (size_t first = 0; first < row.size(); first += 32) {
    const auto block = row.subspan(first, std::min<size_t>(32, row.size() - first));
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    const float scale = largest / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (const float x : block) {
      result.push_back(std::round(x * inverse) * double{HalfToFloat(FloatToHalf(scale))});
    }
  }
  return result;
}

std::vector<double> Exact(std::span<const float> row) { return {row.begin(), row.end()}; }

// Attention in double, of rows as `stored` gives them back. llama.cpp multiplies a q8_0 K by a
// query in q8_0.
std::vector<double> AttendInDouble(const AttentionInput& input,
                                   std::vector<double> (*stored)(std::span<const float> row)) {
  std::vector<std::vector<double>> keys, values;
  for (uint32_t t = 0; t < kNumKeys; ++t) {
    keys.push_back(stored(input.Key(t)));
    values.push_back(stored(input.Value(t)));
  }
  std::vector<double> out(input.queries.size());
  for (uint32_t i = 0; i < kNumQueries; ++i) {
    const auto query = stored(input.Query(i));
    std::vector<double> weights(kNumKeys);
    double largest = -INFINITY, total = 0;
    for (uint32_t t = 0; t < kNumKeys; ++t) {
      for (uint32_t d = 0; d < input.head_dim; ++d) weights[t] += keys[t][d] * query[d];
      weights[t] /= std::sqrt(1.0 * input.head_dim);
      largest = std::max(largest, weights[t]);
    }
    for (double& w : weights) total += w = std::exp(w - largest);
    for (uint32_t t = 0; t < kNumKeys; ++t) {
      for (uint32_t d = 0; d < input.head_dim; ++d) {
        out[size_t{i} * input.head_dim + d] += weights[t] / total * values[t][d];
      }
    }
  }
  return out;
}

// The kernels' attention with K and V in q8r. Every instruction set gives the same bits.
std::vector<double> AttendInQ8r(const AttentionInput& input) {
  constexpr KvDtype kDtype = KvDtype::kQ8r;
  const AttentionKernels& kernels = *Isas()[0].attention;
  const KvDtypeKernels& own = kernels.Of(kDtype);
  const uint32_t head_dim = input.head_dim, query_floats = QueryFloats(head_dim);
  const KvLayout layout = {1, 1, head_dim, kDtype, kDtype};
  const size_t partial_floats = PartialFloats(layout.v_dim());
  std::vector<std::byte> memory(kNumKeys / kBlockTokens * layout.block_bytes());
  std::vector<std::byte*> blocks;
  for (size_t at = 0; at < memory.size(); at += layout.block_bytes()) {
    blocks.push_back(&memory[at]);
  }
  for (uint32_t t = 0; t < kNumKeys; ++t) {
    std::byte* const block = blocks[t / kBlockTokens];
    EXPECT_TRUE(own.store_k(input.Key(t).data(), head_dim, t % kBlockTokens, block));
    EXPECT_TRUE(own.store_v(input.Value(t).data(), head_dim, t % kBlockTokens,
                            block + layout.v_offset(0, 0)));
  }
  std::vector<float> prepared(size_t{kNumQueries} * query_floats);
  for (uint32_t i = 0; i < kNumQueries; ++i) {
    std::vector<float> scaled(input.Query(i).begin(), input.Query(i).end());
    for (float& x : scaled) x *= static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(head_dim));
    own.prepare(scaled.data(), head_dim, &prepared[size_t{i} * query_floats]);
  }
  const std::vector<VisibleRange> visible(kNumQueries, {0, kChunkTokens});
  std::vector<float> state, partials(kNumQueries * partial_floats);
  for (uint32_t chunk = 0; chunk * kChunkTokens < kNumKeys; ++chunk) {
    AttendChunk(kernels, kDtype, kDtype,
                {.queries = prepared.data(),
                 .num_queries = kNumQueries,
                 .head_dim = head_dim,
                 .v_dim = layout.v_dim(),
                 .blocks = &blocks[size_t{chunk} * kChunkBlocks],
                 .num_blocks = kChunkBlocks,
                 .k_offset = layout.k_offset(0, 0),
                 .v_offset = layout.v_offset(0, 0),
                 .visible = visible.data(),
                 .partials = partials.data()});
    if (chunk == 0) {
      state = partials;
      continue;
    }
    for (uint32_t i = 0; i < kNumQueries; ++i) {
      kernels.merge(&state[i * partial_floats], &partials[i * partial_floats], layout.v_dim());
    }
  }
  std::vector<float> out(input.queries.size());
  for (uint32_t i = 0; i < kNumQueries; ++i) {
    kernels.finish(&state[i * partial_floats], head_dim, &out[size_t{i} * head_dim]);
  }
  return {out.begin(), out.end()};
}

double SquaredDistance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// The error of q8r's outputs in parts of that of blocks without rotation, over several inputs.
double ErrorRatio(uint32_t head_dim, uint32_t num_outliers) {
  double rotated = 0, blocks = 0;
  for (uint64_t seed = 1; seed <= kNumInputs; ++seed) {
    const AttentionInput input = MakeInput(head_dim, num_outliers, seed);
    const auto exact = AttendInDouble(input, Exact);
    rotated += SquaredDistance(AttendInQ8r(input), exact);
    blocks += SquaredDistance(AttendInDouble(input, BlockQuantized), exact);
  }
  EXPECT_GT(rotated, 0);
  return std::sqrt(rotated / blocks);
}

TEST(KvOutliers, RotationHalvesWhatBlocksLose) {
  struct Row {
    uint32_t head_dim;
    double with_one, with_two;  // outliers: the most that q8r may lose, where blocks lose 1
  };
  // Half, but where the rotation's blocks of powers of two are small beside the head: 64 + 16 and
  // 64 + 32 + 16.
  constexpr Row kRows[] = {
      {.head_dim = 64, .with_one = 0.5, .with_two = 0.5},
      {.head_dim = 80, .with_one = 0.5, .with_two = 0.55},
      {.head_dim = 96, .with_one = 0.5, .with_two = 0.5},
      {.head_dim = 112, .with_one = 0.55, .with_two = 0.55},
      {.head_dim = 128, .with_one = 0.5, .with_two = 0.5},
  };
  for (const Row& row : kRows) {
    EXPECT_LE(ErrorRatio(row.head_dim, 1), row.with_one) << "head size " << row.head_dim;
    EXPECT_LE(ErrorRatio(row.head_dim, 2), row.with_two) << "head size " << row.head_dim;
  }
}

// Without outliers a scale for each 32 numbers is the better one. It costs bytes: 34 for 32
// numbers.
TEST(KvOutliers, WithoutThemBlocksLoseLess) {
  EXPECT_GT(ErrorRatio(64, 0), 1);
  EXPECT_LT(ErrorRatio(64, 0), 1.5);
}

}  // namespace
}  // namespace kvern::compute
