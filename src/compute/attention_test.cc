// Every instruction set and dtype against a reference written from docs/numerics.md: one query, one
// key at a time, over what the stores wrote.
#include "compute/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/float16.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"

namespace kvern::compute {
namespace {

float Exp2(float x) {
  float y;
  kScalarRows.exp2_non_positive(&x, 1, &y);
  return y;
}

float Canonical(float x) {
  if (std::fabs(x) < 0x1p-30f) return 0.0f;
  return std::fmin(std::fmax(x, -65504.0f), 65504.0f);
}

// Of integers: the limit of a row's numbers. 0 of floats.
float LimitOf(KvDtype dtype) {
  return dtype == KvDtype::kQ8r ? 127.0f : dtype == KvDtype::kQ4r ? 7.0f : 0.0f;
}

float RoundTo(KvDtype dtype, float x) {
  if (dtype == KvDtype::kF16) return HalfToFloat(FloatToHalf(x));
  if (dtype == KvDtype::kBf16) return Bfloat16ToFloat(FloatToBfloat16(x));
  return x;
}

// A Hadamard matrix on blocks of powers of two, the largest first.
void Rotate(std::vector<float>& x) {
  size_t first = 0;
  for (size_t n = size_t{1} << 20; n > 0; n /= 2) {
    if ((x.size() & n) == 0) continue;
    for (size_t stride = n / 2; stride > 0; stride /= 2) {
      for (size_t i = first; i < first + n; ++i) {
        if (((i - first) & stride) != 0) continue;
        const float a = x[i], b = x[i + stride];
        x[i] = a + b, x[i + stride] = a - b;
      }
    }
    const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
    for (size_t i = first; i < first + n; ++i) x[i] *= root;
    first += n;
  }
}

float Largest(const std::vector<float>& x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

// As numbers to multiply: floats, or integers with a scale.
struct Row {
  std::vector<float> numbers;
  float scale = 1.0f;
};

Row MakeRow(KvDtype dtype, std::vector<float> x, bool is_key) {
  for (float& v : x) v = RoundTo(dtype, Canonical(v));
  const float limit = LimitOf(dtype);
  if (limit == 0) return {x, 1.0f};
  if (is_key) Rotate(x);
  const float step = std::fmin(Largest(x) * (1.0f / limit), 65504.0f);
  const float scale = HalfToFloat(FloatToHalf(step));
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (float& v : x) v = std::nearbyint(std::clamp(v * inverse, -limit, limit));
  return {x, scale};
}

Row MakeQuery(KvDtype k_dtype, std::vector<float> x) {
  if (LimitOf(k_dtype) == 0) return {x, 1.0f};
  Rotate(x);
  const float largest = Largest(x);
  if (largest < 0x1p-100f) return {std::vector<float>(x.size()), 0.0f};
  for (float& v : x) v = std::nearbyint(v * (127.0f / largest));
  return {x, largest * (1.0f / 127.0f)};
}

std::vector<float> Prepare(const Isa& isa, KvDtype k_dtype, std::span<const float> queries,
                           uint32_t head_dim, size_t margin = 0) {
  const size_t count = queries.size() / head_dim, stride = QueryFloats(head_dim);
  std::vector<float> prepared(margin + count * stride);
  for (size_t i = 0; i < count; ++i) {
    isa.attention->Of(k_dtype).prepare(&queries[i * head_dim], head_dim,
                                       &prepared[margin + i * stride]);
  }
  return prepared;
}

struct Case {
  uint32_t head_dim;
  KvDtype k_dtype, v_dtype;
  uint32_t num_tokens;
  uint32_t window;
  float query_scale;
};

// One layer, one head, with the blocks in a scattered order.
class Cache {
 public:
  Cache(const Isa& isa, const Case& c, uint64_t seed)
      : layout_{1, 1, c.head_dim, c.k_dtype, c.v_dtype},
        num_blocks_((c.num_tokens + kBlockTokens - 1) / kBlockTokens),
        memory_(num_blocks_ * layout_.block_bytes()) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (uint32_t b = 0; b < num_blocks_; ++b) {
      blocks_.push_back(memory_.data() + (num_blocks_ - 1 - b) * layout_.block_bytes());
    }
    std::vector<float> key(c.head_dim), value(c.head_dim);
    for (uint32_t t = 0; t < c.num_tokens; ++t) {
      // Rows of every size, among them zeros.
      const float sizes[] = {1.0f, 1.0f, 1.0f, 1e-5f, 0.0f, 40.0f, 1.0f};
      for (float& x : key) x = normal(random) * sizes[t % 7];
      for (float& x : value) x = normal(random) * sizes[t % 11 % 7];
      if (t == 0) key.front() = -0.0f, key.back() = 0x1.8p-30f;
      if (t == 0) value.front() = 1e-20f, value.back() = -1e9f;
      std::byte* block = blocks_[t / kBlockTokens];
      const uint32_t slot = t % kBlockTokens;
      EXPECT_TRUE(isa.attention->Of(c.k_dtype).store_k(key.data(), c.head_dim, slot,
                                                       block + layout_.k_offset(0, 0)));
      EXPECT_TRUE(isa.attention->Of(c.v_dtype).store_v(value.data(), c.head_dim, slot,
                                                       block + layout_.v_offset(0, 0)));
      k_.push_back(MakeRow(c.k_dtype, key, /*is_key=*/true));
      v_.push_back(MakeRow(c.v_dtype, value, /*is_key=*/false));
    }
  }

  const KvLayout& layout() const { return layout_; }
  const std::vector<std::byte>& memory() const { return memory_; }
  std::byte* const* blocks() const { return blocks_.data(); }
  const Row& k(uint32_t t) const { return k_[t]; }
  const Row& v(uint32_t t) const { return v_[t]; }

  // Garbage that a rolled-back sequence may have left behind: finite, beyond the last token.
  void FillTail(uint32_t num_tokens) {
    for (uint32_t t = num_tokens; t < num_blocks_ * kBlockTokens; ++t) {
      const std::vector<float> big(layout_.head_dim, 65504.0f);
      std::byte* block = blocks_[t / kBlockTokens];
      Scalar()
          .Of(layout_.k_dtype)
          .store_k(big.data(), layout_.head_dim, t % kBlockTokens, block + layout_.k_offset(0, 0));
      Scalar()
          .Of(layout_.v_dtype)
          .store_v(big.data(), layout_.head_dim, t % kBlockTokens, block + layout_.v_offset(0, 0));
    }
  }

 private:
  static const AttentionKernels& Scalar() { return *Isas()[0].attention; }

  KvLayout layout_;
  uint32_t num_blocks_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
  std::vector<Row> k_, v_;
};

float ScoreReference(KvDtype k_dtype, const Row& key, const Row& query) {
  const auto& k = key.numbers;
  const auto& q = query.numbers;
  if (LimitOf(k_dtype) == 0) {
    float sum = 0;
    for (size_t d = 0; d < k.size(); ++d) sum = std::fma(k[d], q[d], sum);
    return sum;
  }
  int32_t sum = 0;
  for (size_t d = 0; d < k.size(); ++d) sum += static_cast<int32_t>(k[d] * q[d]);
  return static_cast<float>(sum) * key.scale * query.scale;
}

// Of tokens [from, from + weights.size()).
std::vector<float> OutputReference(const Cache& cache, const std::vector<float>& weights,
                                   uint32_t from) {
  std::vector<float> out(cache.layout().head_dim);
  if (LimitOf(cache.layout().v_dtype) == 0) {
    for (uint32_t t = 0; t < weights.size(); ++t) {
      const auto& v = cache.v(from + t).numbers;
      for (size_t d = 0; d < out.size(); ++d) out[d] = std::fma(weights[t], v[d], out[d]);
    }
    for (float& x : out) x += 0.0f;
    return out;
  }
  std::vector<float> scaled;
  for (uint32_t t = 0; t < weights.size(); ++t) {
    scaled.push_back(weights[t] * cache.v(from + t).scale);
  }
  const float largest = Largest(scaled), inverse = largest >= 1e-30f ? 32767.0f / largest : 0.0f;
  std::vector<int64_t> sums(out.size());
  for (uint32_t t = 0; t < weights.size(); ++t) {
    const auto weight = static_cast<int64_t>(std::nearbyint(scaled[t] * inverse));
    const auto& v = cache.v(from + t).numbers;
    for (size_t d = 0; d < out.size(); ++d) sums[d] += weight * static_cast<int64_t>(v[d]);
  }
  for (size_t d = 0; d < out.size(); ++d) {
    EXPECT_EQ(sums[d], static_cast<int32_t>(sums[d]));
    out[d] = static_cast<float>(sums[d]) * (largest * (1.0f / 32767.0f));
  }
  return out;
}

std::vector<float> AttendReference(const Cache& cache, const float* q, uint32_t position,
                                   uint32_t window) {
  const uint32_t dim = cache.layout().head_dim;
  const uint32_t first = window != 0 && position >= window ? position - window + 1 : 0;
  const Row query = MakeQuery(cache.layout().k_dtype, {q, q + dim});
  float total_max = 0, total = 0;
  std::vector<float> out(dim);
  bool started = false;
  for (uint32_t begin = 0; begin <= position; begin += kChunkTokens) {
    const uint32_t from = std::max(begin, first), to = std::min(begin + kChunkTokens, position + 1);
    if (from >= to) continue;
    std::vector<float> score(kChunkTokens), weights;
    float max = -INFINITY, lanes[16] = {};
    for (uint32_t t = from; t < to; ++t) {
      score[t - begin] = ScoreReference(cache.layout().k_dtype, cache.k(t), query);
      max = std::max(max, score[t - begin]);
    }
    for (uint32_t t = from; t < to; ++t) {
      weights.push_back(Exp2(score[t - begin] - max));
      lanes[t % 16] += weights.back();
    }
    const std::vector<float> sum = OutputReference(cache, weights, from);
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    if (!started) {
      total_max = max, total = lanes[0], out = sum, started = true;
      continue;
    }
    const float new_max = std::max(total_max, max);
    const float keep = Exp2(total_max - new_max), take = Exp2(max - new_max);
    total = std::fma(total, keep, lanes[0] * take);
    for (uint32_t d = 0; d < dim; ++d) out[d] = std::fma(out[d], keep, sum[d] * take);
    total_max = new_max;
  }
  const float scale = 1.0f / total;
  for (float& x : out) x *= scale;
  return out;
}

// Queries [num_queries][head_dim] at consecutive positions from `first_position`, in one tile.
void AttendTile(const Isa& isa, const Cache& cache, const Case& c, std::span<const float> queries,
                uint32_t first_position, float* out) {
  const auto num_queries = static_cast<uint32_t>(queries.size() / c.head_dim);
  const uint32_t v_dim = cache.layout().v_dim();
  const size_t stride = PartialFloats(v_dim);
  const std::vector<float> prepared = Prepare(isa, c.k_dtype, queries, c.head_dim);
  std::vector<float> state(num_queries * stride), partials(state.size());
  std::vector<bool> started(num_queries);
  const uint32_t end = first_position + num_queries;
  for (uint32_t chunk = 0; chunk * kChunkTokens < end; ++chunk) {
    std::vector<VisibleRange> visible;
    for (uint32_t i = 0; i < num_queries; ++i) {
      visible.push_back(VisibleInChunk(first_position + i, c.window, chunk));
    }
    const uint32_t last = std::min(end - chunk * kChunkTokens, kChunkTokens);
    AttendChunk(*isa.attention, c.k_dtype, c.v_dtype,
                {.queries = prepared.data(),
                 .num_queries = num_queries,
                 .head_dim = c.head_dim,
                 .v_dim = v_dim,
                 .blocks = cache.blocks() + chunk * kChunkBlocks,
                 .num_blocks = (last + kBlockTokens - 1) / kBlockTokens,
                 .k_offset = cache.layout().k_offset(0, 0),
                 .v_offset = cache.layout().v_offset(0, 0),
                 .visible = visible.data(),
                 .partials = partials.data()});
    for (uint32_t i = 0; i < num_queries; ++i) {
      if (visible[i].empty()) continue;
      if (started[i]) {
        isa.attention->merge(&state[i * stride], &partials[i * stride], v_dim);
      } else {
        std::copy_n(&partials[i * stride], stride, &state[i * stride]);
        started[i] = true;
      }
    }
  }
  for (uint32_t i = 0; i < num_queries; ++i) {
    isa.attention->finish(&state[i * stride], c.head_dim, out + size_t{i} * c.head_dim);
  }
}

void CheckCase(const Case& c) {
  SCOPED_TRACE(testing::Message() << "head_dim " << c.head_dim << " dtypes " << int(c.k_dtype)
                                  << "/" << int(c.v_dtype) << " tokens " << c.num_tokens
                                  << " window " << c.window << " scale " << c.query_scale);
  std::mt19937_64 random(c.head_dim * 31 + c.num_tokens);
  std::normal_distribution<float> normal;
  std::vector<float> queries(size_t{c.num_tokens} * c.head_dim);
  for (float& q : queries) q = normal(random) * c.query_scale;
  std::vector<float> expected;
  std::vector<std::byte> scalar_memory;
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    Cache cache(isa, c, /*seed=*/11);
    if (scalar_memory.empty()) {
      scalar_memory = cache.memory();
      for (uint32_t p = 0; p < c.num_tokens; ++p) {
        const auto row = AttendReference(cache, &queries[size_t{p} * c.head_dim], p, c.window);
        expected.insert(expected.end(), row.begin(), row.end());
      }
    }
    ASSERT_TRUE(cache.memory() == scalar_memory) << isa.name << ": stored bytes differ";
    for (const bool garbage : {false, true}) {
      if (garbage) cache.FillTail(c.num_tokens);
      for (const uint32_t tile : {1u, 3u, 7u, 24u, 32u}) {
        std::vector<float> out(expected.size(), NAN);
        for (uint32_t first = 0; first < c.num_tokens; first += tile) {
          const size_t at = size_t{first} * c.head_dim;
          const size_t size = size_t{std::min(tile, c.num_tokens - first)} * c.head_dim;
          AttendTile(isa, cache, c, std::span(queries).subspan(at, size), first, &out[at]);
        }
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * 4), 0)
            << isa.name << " tile " << tile << " garbage " << garbage;
      }
    }
  }
}

TEST(Attention, EveryIsaAndDtypeEqualsTheReferenceBitForBit) {
  for (const KvDtypeTraits& k : KvDtypes()) {
    for (const KvDtypeTraits& v : KvDtypes()) CheckCase({64, k.dtype, v.dtype, 150, 0, 0.2f});
  }
}

TEST(Attention, AnyHeadSizeLengthAndWindow) {
  for (const uint32_t head_dim : {1u, 4u, 7u, 20u, 40u, 80u, 96u, 112u, 128u, 256u}) {
    for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kQ8r, KvDtype::kQ4r}) {
      CheckCase({head_dim, dtype, dtype, 133, 0, 0.3f});
    }
  }
  for (const uint32_t window : {1u, 16u, 100u, 128u, 200u}) {
    CheckCase({32, KvDtype::kF16, KvDtype::kBf16, 300, window, 0.3f});
  }
  // Large scores reach the cut-off of the exponential, and rescale whole chunks to zero.
  CheckCase({64, KvDtype::kF16, KvDtype::kF16, 400, 0, 30.0f});
  CheckCase({64, KvDtype::kQ8r, KvDtype::kQ8r, 400, 0, 30.0f});
  CheckCase({32, KvDtype::kQ8r, KvDtype::kQ8r, 300, 100, 0.3f});
}

// A prefix-cache hit leaves the rest of a prompt to be computed from any position on: tiles of
// queries that begin at every place of a block and of a chunk, over stored rows of every length.
TEST(Attention, AfterAHitOfAnyLength) {
  constexpr uint32_t kMaxHit = 260, kRest = 7;
  const Case c = {32, KvDtype::kF16, KvDtype::kF16, kMaxHit + kRest, 0, 0.3f};
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> queries(size_t{c.num_tokens} * c.head_dim);
  for (float& q : queries) q = normal(random) * c.query_scale;
  std::vector<float> expected;
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    const Cache cache(isa, c, /*seed=*/6);
    for (uint32_t p = 0; expected.size() < queries.size(); ++p) {
      const auto row = AttendReference(cache, &queries[size_t{p} * c.head_dim], p, c.window);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for (uint32_t hit = 1; hit <= kMaxHit; ++hit) {
      const size_t at = size_t{hit} * c.head_dim, size = size_t{1 + hit % kRest} * c.head_dim;
      std::vector<float> out(size);
      AttendTile(isa, cache, c, std::span(queries).subspan(at, size), hit, out.data());
      ASSERT_EQ(std::memcmp(out.data(), &expected[at], size * 4), 0) << isa.name << " hit " << hit;
    }
  }
}

// Queries of many sequences, each of which sees what it may of the chunk that they share, in tiles
// of every size: a query's partial does not depend on its company.
void CheckCompany(const Case& c) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> queries(size_t{kMaxChunkQueries} * c.head_dim);
  for (float& q : queries) q = normal(random) * c.query_scale;
  std::vector<VisibleRange> visible;
  for (uint32_t i = 0; i < kMaxChunkQueries; ++i) {
    const auto first = static_cast<uint32_t>(i % 3 == 0 ? random() % kChunkTokens : 0);
    const auto seen = static_cast<uint32_t>(random() % (kChunkTokens - first));
    visible.push_back({first, i % 2 == 0 ? kChunkTokens : first + 1 + seen});
  }
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    const Cache cache(isa, c, /*seed=*/8);
    const uint32_t v_dim = cache.layout().v_dim();
    const auto attend = [&](uint32_t first, uint32_t count, size_t margin) {
      const auto some = std::span(queries).subspan(size_t{first} * c.head_dim);
      // With a margin, so that queries have every alignment.
      const auto moved = Prepare(isa, c.k_dtype, some, c.head_dim, margin);
      std::vector<float> partials(count * PartialFloats(v_dim));
      AttendChunk(*isa.attention, c.k_dtype, c.v_dtype,
                  {.queries = moved.data() + margin,
                   .num_queries = count,
                   .head_dim = c.head_dim,
                   .v_dim = v_dim,
                   .blocks = cache.blocks(),
                   .num_blocks = kChunkBlocks,
                   .k_offset = cache.layout().k_offset(0, 0),
                   .v_offset = cache.layout().v_offset(0, 0),
                   .visible = &visible[first],
                   .partials = partials.data()});
      return partials;
    };
    const auto all = attend(0, kMaxChunkQueries, 0);
    for (uint32_t count = 1; count <= kMaxChunkQueries; ++count) {
      const uint32_t first = (count * 5) % (kMaxChunkQueries - count + 1);
      const auto some = attend(first, count, count % 16);
      const float* expected = &all[first * PartialFloats(v_dim)];
      for (size_t i = 0; i < some.size(); ++i) {
        if (i % PartialFloats(v_dim) >= 2 && i % PartialFloats(v_dim) < 16) continue;  // unused
        ASSERT_EQ(std::bit_cast<uint32_t>(some[i]), std::bit_cast<uint32_t>(expected[i]))
            << isa.name << ", " << count << " queries from " << first;
      }
    }
  }
}

TEST(Attention, CompanyInATileDoesNotMatter) {
  CheckCompany({48, KvDtype::kBf16, KvDtype::kF16, kChunkTokens, 0, 0.3f});
  CheckCompany({48, KvDtype::kQ8r, KvDtype::kQ8r, kChunkTokens, 0, 0.3f});
  CheckCompany({48, KvDtype::kQ4r, KvDtype::kQ4r, kChunkTokens, 0, 0.3f});
}

// A sum of tiny products that cancel must not keep the sign of its rounding error: the zero weights
// of hidden keys would change it, depending on what their rows hold.
TEST(Attention, HiddenKeysDoNotChangeTheSignOfZero) {
  constexpr uint32_t kDim = 16;
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    const auto attend = [&](float hidden_value) {
      alignas(64) float k[kDim * kBlockTokens] = {}, v[kBlockTokens * kDim] = {};
      k[1] = k[2] = -114.3f;  // keys 1 and 2 weigh about 2⁻¹¹⁴, key 0 weighs 1 and has no value
      for (uint32_t d = 0; d < kDim; ++d) {
        v[1 * kDim + d] = 0x1p-30f * (1 + 0.0617f * static_cast<float>(d));
        v[2 * kDim + d] = -v[1 * kDim + d];
        for (uint32_t t = 3; t < kBlockTokens; ++t) v[t * kDim + d] = hidden_value;
      }
      std::vector<std::byte> block(sizeof(k) + sizeof(v));
      std::memcpy(block.data(), k, sizeof(k));
      std::memcpy(block.data() + sizeof(k), v, sizeof(v));
      std::byte* const blocks[] = {block.data()};
      const float query[kDim] = {1.0f};
      const VisibleRange visible = {0, 3};
      std::vector<float> partial(PartialFloats(kDim));
      AttendChunk(*isa.attention, KvDtype::kF32, KvDtype::kF32,
                  {.queries = query,
                   .num_queries = 1,
                   .head_dim = kDim,
                   .v_dim = kDim,
                   .blocks = blocks,
                   .num_blocks = 1,
                   .k_offset = 0,
                   .v_offset = sizeof(k),
                   .visible = &visible,
                   .partials = partial.data()});
      return partial;
    };
    const auto over_zeros = attend(0.0f), over_values = attend(-65504.0f);
    EXPECT_EQ(std::memcmp(over_zeros.data(), over_values.data(), over_zeros.size() * 4), 0)
        << isa.name;
  }
}

TEST(Attention, VisibleRanges) {
  const auto same = [](VisibleRange a, VisibleRange b) {
    return a.first == b.first && a.end == b.end;
  };
  EXPECT_TRUE(same(VisibleInChunk(0, 0, 0), {0, 1}));
  EXPECT_TRUE(same(VisibleInChunk(127, 0, 0), {0, 128}));
  EXPECT_TRUE(same(VisibleInChunk(130, 0, 0), {0, 128}));
  EXPECT_TRUE(same(VisibleInChunk(130, 0, 1), {0, 3}));
  EXPECT_TRUE(VisibleInChunk(127, 0, 1).empty());
  EXPECT_TRUE(same(VisibleInChunk(130, 4, 0), {127, 128}));
  EXPECT_TRUE(same(VisibleInChunk(130, 3, 1), {0, 3}));
  EXPECT_TRUE(VisibleInChunk(130, 3, 0).empty());
}

// Ties, subnormals, what canonicalises, and random bits, from rows at every alignment.
TEST(Attention, StoresGiveTheScalarBytes) {
  std::mt19937_64 random(9);
  for (size_t dtype = 0; dtype < kNumKvDtypes; ++dtype) {
    for (const uint32_t head_dim : {1u, 7u, 16u, 31u, 64u, 80u}) {
      std::vector<float> row(head_dim);
      const float edges[] = {0.0f,       -0.0f,     1e-40f,    0x1p-30f, -0x1.fffffep-31f,
                             65504.0f,   65520.0f,  -1e30f,    1.0f,     0x1.002p0f,
                             0x1.006p0f, 0x1.01p0f, 0x1.03p0f, 0x1p-24f, 0x1.8p-25f,
                             0x1p-15f};
      for (uint32_t d = 0; d < head_dim; ++d) {
        row[d] = edges[(d + head_dim) % std::size(edges)];
        const auto bits = static_cast<uint32_t>(random());
        if (d >= 32) std::memcpy(&row[d], &bits, sizeof bits);
        if (!std::isfinite(row[d])) row[d] = 3.0f;
      }
      std::vector<std::byte> expected_k, expected_v;
      for (const Isa& isa : Isas()) {
        if (!isa.supported()) continue;
        for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
          std::vector<std::byte> k(80 * 16 * 4), v(80 * 16 * 4);
          std::vector<float> moved(slot, 0.0f);
          moved.insert(moved.end(), row.begin(), row.end());
          const float* at = moved.data() + slot;
          EXPECT_TRUE(isa.attention->dtypes[dtype].store_k(at, head_dim, slot, k.data()));
          EXPECT_TRUE(isa.attention->dtypes[dtype].store_v(at, head_dim, slot, v.data()));
          expected_k.resize(kBlockTokens * k.size()), expected_v.resize(kBlockTokens * v.size());
          if (&isa == Isas().data()) {
            std::copy(k.begin(), k.end(), &expected_k[slot * k.size()]);
            std::copy(v.begin(), v.end(), &expected_v[slot * v.size()]);
          }
          ASSERT_EQ(std::memcmp(k.data(), &expected_k[slot * k.size()], k.size()), 0) << isa.name;
          ASSERT_EQ(std::memcmp(v.data(), &expected_v[slot * v.size()], v.size()), 0) << isa.name;
        }
      }
    }
  }
}

TEST(Attention, StoresRefuseWhatIsNotFinite) {
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (size_t dtype = 0; dtype < kNumKvDtypes; ++dtype) {
      std::vector<std::byte> plane(64 * 16 * 4);
      std::vector<float> row(20, 1.0f);
      EXPECT_TRUE(isa.attention->dtypes[dtype].store_k(row.data(), 20, 3, plane.data()));
      row[19] = NAN;
      EXPECT_FALSE(isa.attention->dtypes[dtype].store_k(row.data(), 20, 3, plane.data()));
      row[19] = -INFINITY;
      EXPECT_FALSE(isa.attention->dtypes[dtype].store_v(row.data(), 20, 3, plane.data()));
    }
  }
}

}  // namespace
}  // namespace kvern::compute
