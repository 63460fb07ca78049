// Attention kernels over the vector of the including file (rules N3, N5, N6).
//
// Scores: 16 tokens are the lanes, a chain of fused multiply-adds over head_dim. Outputs: 16
// dimensions are the lanes, a chain over the tokens. Neither adds across lanes.
#include "compute/attention.h"
#include "compute/isa/functions-inl.h"
#include "compute/kv_dtype/bf16-inl.h"
#include "compute/kv_dtype/f16-inl.h"
#include "compute/kv_dtype/f32-inl.h"
#include "kvern/paged_view.h"

namespace {

using kvern::kBlockTokens;
using kvern::kChunkTokens;
using kvern::compute::ChunkTask;
using kvern::compute::PartialFloats;
using kvern::compute::VisibleRange;

constexpr float kNegativeInfinity = -__builtin_inff();

template <typename Codec>
KVERN_INLINE const typename Codec::Element* Plane(const std::byte* block, size_t offset) {
  return reinterpret_cast<const typename Codec::Element*>(block + offset);
}

// Blocks or vectors that a tile of `queries` can take along: its sums, a row of what they are
// multiplied with, and one factor stay in registers.
constexpr int TileWidth(int queries) {
  const int width = (kVectorRegisters - 1) / (queries + 1);
  return width >= 4 ? 4 : width >= 2 ? 2 : 1;
}

// Scores of kQueries queries against kBlocks blocks. With kStream, a plane ahead is fetched for
// each.
template <typename Codec, int kQueries, int kBlocks, bool kStream>
KVERN_INLINE void ScoreTile(const ChunkTask& task, uint32_t query, uint32_t block, float* scores) {
  const float* q = task.queries + size_t{query} * task.head_dim;
  const typename Codec::Element* k[kBlocks];
  const typename Codec::Element* next[kBlocks];
  F32x16 acc[kQueries][kBlocks];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    k[b] = Plane<Codec>(task.blocks[block + b], task.k_offset);
    next[b] = kStream ? Plane<Codec>(task.ahead[block + b], 0) : nullptr;
#pragma GCC unroll 12
    for (int i = 0; i < kQueries; ++i) acc[i][b] = Set1(0.0f);
  }
  for (uint32_t d = 0; d < task.head_dim; ++d) {
    F32x16 keys[kBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      keys[b] = Codec::Load16(k[b] + d * kBlockTokens);
      if (kStream && d % 2 == 0) Prefetch(next[b] + d * kBlockTokens);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kQueries; ++i) {
      const F32x16 factor = Set1(q[size_t(i) * task.head_dim + d]);
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) acc[i][b] = Fma(keys[b], factor, acc[i][b]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      Store(scores + (query + i) * kChunkTokens + (block + b) * kBlockTokens, acc[i][b]);
    }
  }
}

template <typename Codec, int kQueries, bool kStream>
[[gnu::noinline]] void ScoreQueries(const ChunkTask& task, uint32_t query, float* scores) {
  constexpr int kBlocks = TileWidth(kQueries);
  uint32_t block = 0;
  for (; block + kBlocks <= task.num_blocks; block += kBlocks) {
    ScoreTile<Codec, kQueries, kBlocks, kStream>(task, query, block, scores);
  }
  for (; block < task.num_blocks; ++block) {
    ScoreTile<Codec, kQueries, 1, kStream>(task, query, block, scores);
  }
}

// Calls Step::Run<n> for the largest n ≤ kCount that fits until `total` items are done.
template <typename Step, int kCount, typename... Args>
KVERN_INLINE uint32_t InSteps(uint32_t done, uint32_t total, const Args&... args) {
  for (; total - done >= kCount; done += kCount) Step::template Run<kCount>(done, args...);
  if constexpr (kCount > 1) {
    constexpr int kNext = kCount > 10  ? 10
                          : kCount > 8 ? 8
                          : kCount > 6 ? 6
                          : kCount > 4 ? 4
                                       : kCount - 1;
    if (done < total) done = InSteps<Step, kNext>(done, total, args...);
  }
  return done;
}

template <typename Codec>
struct ScoreStep {
  template <int kQueries>
  KVERN_INLINE static void Run(uint32_t query, const ChunkTask& task, float* scores) {
    if (query == 0 && task.ahead != nullptr) {
      return ScoreQueries<Codec, kQueries, true>(task, query, scores);
    }
    ScoreQueries<Codec, kQueries, false>(task, query, scores);
  }
};

// Of a pass. With 32 registers 22 sums, and three passes for a whole task of 32 queries.
constexpr int kPassQueries = kVectorRegisters >= 32 ? 11 : kVectorRegisters >= 8 ? 6 : 1;

template <typename Codec>
void Scores(const ChunkTask& task, float* scores) {
  InSteps<ScoreStep<Codec>, kPassQueries>(0, task.num_queries, task, scores);
}

KVERN_INLINE int LaneOf(uint32_t token, uint32_t block) {
  const uint32_t begin = block * kBlockTokens;
  if (token <= begin) return 0;
  return token - begin < kBlockTokens ? static_cast<int>(token - begin) : kLanes;
}

// The largest visible score of a query; those of hidden keys become -inf.
KVERN_INLINE float HideAndFindMax(VisibleRange visible, uint32_t num_blocks, float* row) {
  const F32x16 hidden = Set1(kNegativeInfinity);
  F32x16 largest = hidden;
  if (visible.first == 0 && visible.end >= num_blocks * kBlockTokens) {
    for (uint32_t b = 0; b < num_blocks; ++b) largest = Max(largest, Load(row + b * kBlockTokens));
    return FoldMax(largest);
  }
  for (uint32_t b = 0; b < num_blocks; ++b) {
    const int first = LaneOf(visible.first, b), end = LaneOf(visible.end, b);
    const F32x16 seen = SelectRange(first, end, Load(row + b * kBlockTokens), hidden);
    Store(row + b * kBlockTokens, seen);
    largest = Max(largest, seen);
  }
  return FoldMax(largest);
}

void Weights(const ChunkTask& task, float* scores) {
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    float* row = scores + i * kChunkTokens;
    const float max = HideAndFindMax(task.visible[i], task.num_blocks, row);
    F32x16 sum = Set1(0.0f);
    for (uint32_t b = 0; b < task.num_blocks; ++b) {
      const F32x16 shifted = Sub(Load(row + b * kBlockTokens), Set1(max));
      const F32x16 weight = Exp2NonPositive(shifted);
      Store(row + b * kBlockTokens, weight);
      sum = Add(sum, weight);
    }
    float* partial = task.partials + i * PartialFloats(task.v_dim);
    partial[0] = max;
    partial[1] = Fold(sum);
  }
}

// Outputs of kQueries queries, 16·kVectors dimensions from `dim`. With kStream, a plane ahead is
// fetched for each block.
template <typename Codec, int kQueries, int kVectors, bool kStream>
KVERN_INLINE void OutputTile(const ChunkTask& task, uint32_t query, uint32_t dim,
                             const float* weights) {
  weights += size_t{query} * kChunkTokens;
  F32x16 acc[kQueries][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) acc[i][c] = Set1(0.0f);
  }
  for (uint32_t b = 0; b < task.num_blocks; ++b) {
    const auto* row = Plane<Codec>(task.blocks[b], task.v_offset) + dim;
    const auto* next =
        kStream ? Plane<Codec>(task.ahead[task.num_blocks + b], 0) + dim * kBlockTokens : nullptr;
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      F32x16 values[kVectors];
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) {
        values[c] = Codec::Load16(row + c * kLanes);
        if (kStream && t % 2 == 0) Prefetch(next + (t * kVectors + 2 * c) * kLanes);
      }
#pragma GCC unroll 12
      for (int i = 0; i < kQueries; ++i) {
        const F32x16 weight = Set1(weights[i * kChunkTokens]);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) acc[i][c] = Fma(weight, values[c], acc[i][c]);
      }
      row += task.v_dim;
      ++weights;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
    float* out = task.partials + (query + i) * PartialFloats(task.v_dim) + 16 + dim;
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      // -0 to +0: a cancelled sum may be -0, which the zero weight of a hidden key may turn or not.
      Store(out + c * kLanes, Add(acc[i][c], Set1(0.0f)));
    }
  }
}

template <typename Codec, int kQueries, bool kStream>
[[gnu::noinline]] void OutputQueries(const ChunkTask& task, uint32_t query, const float* weights) {
  constexpr int kVectors = TileWidth(kQueries);
  uint32_t dim = 0;
  for (; dim + kVectors * kLanes <= task.v_dim; dim += kVectors * kLanes) {
    OutputTile<Codec, kQueries, kVectors, kStream>(task, query, dim, weights);
  }
  for (; dim < task.v_dim; dim += kLanes) {
    OutputTile<Codec, kQueries, 1, kStream>(task, query, dim, weights);
  }
}

template <typename Codec>
struct OutputStep {
  template <int kQueries>
  KVERN_INLINE static void Run(uint32_t query, const ChunkTask& task, const float* weights) {
    if (query == 0 && task.ahead != nullptr) {
      return OutputQueries<Codec, kQueries, true>(task, query, weights);
    }
    OutputQueries<Codec, kQueries, false>(task, query, weights);
  }
};

template <typename Codec>
void Outputs(const ChunkTask& task, const float* weights) {
  InSteps<OutputStep<Codec>, kPassQueries>(0, task.num_queries, task, weights);
}

KVERN_INLINE float FirstLane(F32x16 a) {
  float lane;
  StoreFirst(&lane, a, 1);
  return lane;
}

// 2^(x - max): exactly 1 where x is the maximum.
KVERN_INLINE F32x16 ShareOfMax(float x, float max) {
  return x == max ? Set1(1.0f) : Exp2NonPositive(Set1(x - max));
}

void Merge(float* state, const float* partial, uint32_t v_dim) {
  const float max = state[0] > partial[0] ? state[0] : partial[0];
  const F32x16 keep = ShareOfMax(state[0], max), take = ShareOfMax(partial[0], max);
  state[0] = max;
  state[1] = FmaScalar(state[1], FirstLane(keep), partial[1] * FirstLane(take));
  for (uint32_t d = 16; d < 16 + v_dim; d += kLanes) {
    Store(state + d, Fma(Load(state + d), keep, Mul(Load(partial + d), take)));
  }
}

void Finish(const float* state, uint32_t head_dim, float* out) {
  const F32x16 scale = Set1(1.0f / state[1]);
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? static_cast<int>(head_dim - d) : kLanes;
    StoreFirst(out + d, Mul(Load(state + 16 + d), scale), count);
  }
}

// --- Stores ---

constexpr float kSmallestStored = 0x1p-30f;
constexpr float kLargestStored = 65504.0f;

// Rule N6, for finite x. Tiny values of either sign become +0.
KVERN_INLINE F32x16 Canonical(F32x16 x) {
  const F32x16 magnitude = FromBits(AndInt(Bits(x), Set1Int(0x7FFFFFFF)));
  const F32x16 limit = Set1(kLargestStored);
  x = SelectGreaterEqual(limit, x, x, limit);
  x = SelectGreaterEqual(x, Set1(-kLargestStored), x, Set1(-kLargestStored));
  return SelectGreaterEqual(magnitude, Set1(kSmallestStored), x, Set1(0.0f));
}

KVERN_INLINE bool AllFinite(const float* row, uint32_t n) {
  for (uint32_t d = 0; d < n; d += kLanes) {
    const int count = n - d < kLanes ? static_cast<int>(n - d) : kLanes;
    const I32x16 bits = AndInt(Bits(LoadFirst(row + d, count)), Set1Int(0x7FFFFFFF));
    if (FoldMaxInt(bits) >= 0x7F800000) return false;
  }
  return true;
}

template <typename Codec>
bool StoreKey(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  if (!AllFinite(row, head_dim)) return false;
  auto* out = reinterpret_cast<typename Codec::Element*>(plane) + slot;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? static_cast<int>(head_dim - d) : kLanes;
    typename Codec::Element rounded[kLanes];
    Codec::Store16(rounded, Canonical(LoadFirst(row + d, count)));
    for (int i = 0; i < count; ++i) out[(d + i) * kBlockTokens] = rounded[i];
  }
  return true;
}

template <typename Codec>
bool StoreValue(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  if (!AllFinite(row, head_dim)) return false;
  const uint32_t v_dim = (head_dim + kLanes - 1) / kLanes * kLanes;
  auto* out = reinterpret_cast<typename Codec::Element*>(plane) + size_t{slot} * v_dim;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? static_cast<int>(head_dim - d) : kLanes;
    Codec::Store16(out + d, Canonical(LoadFirst(row + d, count)));
  }
  return true;
}

}  // namespace

namespace kvern::compute::KVERN_ISA {

// Columns in the order of KvDtype.
extern const AttentionKernels kAttention;
const AttentionKernels kAttention = {
    .scores = {Scores<KvF32>, Scores<KvF16>, Scores<KvBf16>},
    .weights = Weights,
    .outputs = {Outputs<KvF32>, Outputs<KvF16>, Outputs<KvBf16>},
    .merge = Merge,
    .finish = Finish,
    .store_k = {StoreKey<KvF32>, StoreKey<KvF16>, StoreKey<KvBf16>},
    .store_v = {StoreValue<KvF32>, StoreValue<KvF16>, StoreValue<KvBf16>},
};

}  // namespace kvern::compute::KVERN_ISA
