// Attention kernels of K and V as floats (rules N3, N6).
//
// Scores: 16 tokens are the lanes, a chain of fused multiply-adds over head_dim. Outputs: 16
// dimensions are the lanes, a chain over the tokens. Neither adds across lanes.
#pragma once

#include <cstring>

#include "compute/isa/attention_common-inl.h"
#include "compute/kv_dtype/bf16-inl.h"
#include "compute/kv_dtype/f16-inl.h"
#include "compute/kv_dtype/f32-inl.h"

namespace {

inline void CopyQuery(const float* q, uint32_t head_dim, float* out) {
  std::memcpy(out, q, head_dim * sizeof *q);
}

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
  const size_t stride = QueryFloats(task.head_dim);
  const float* q = task.queries + query * stride;
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
      const F32x16 factor = Set1(q[size_t(i) * stride + d]);
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

template <typename Codec>
struct FloatScorePass {
  template <int kQueries, bool kStream>
  [[gnu::noinline]] static void Run(uint32_t query, const ChunkTask& task, float* scores) {
    constexpr int kBlocks = TileWidth(kQueries);
    uint32_t block = 0;
    for (; block + kBlocks <= task.num_blocks; block += kBlocks) {
      ScoreTile<Codec, kQueries, kBlocks, kStream>(task, query, block, scores);
    }
    for (; block < task.num_blocks; ++block) {
      ScoreTile<Codec, kQueries, 1, kStream>(task, query, block, scores);
    }
  }
};

// Of a pass. With 32 registers 22 sums, and three passes for a whole task of 32 queries.
constexpr int kPassQueries = kVectorRegisters >= 32 ? 11 : kVectorRegisters >= 8 ? 6 : 1;

template <typename Codec>
void FloatScores(const ChunkTask& task, float* scores) {
  InPasses<FloatScorePass<Codec>, kPassQueries>(task, scores);
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

template <typename Codec>
struct FloatOutputPass {
  template <int kQueries, bool kStream>
  [[gnu::noinline]] static void Run(uint32_t query, const ChunkTask& task, const float* weights) {
    constexpr int kVectors = TileWidth(kQueries);
    uint32_t dim = 0;
    for (; dim + kVectors * kLanes <= task.v_dim; dim += kVectors * kLanes) {
      OutputTile<Codec, kQueries, kVectors, kStream>(task, query, dim, weights);
    }
    for (; dim < task.v_dim; dim += kLanes) {
      OutputTile<Codec, kQueries, 1, kStream>(task, query, dim, weights);
    }
  }
};

template <typename Codec>
void FloatOutputs(const ChunkTask& task, const float* weights) {
  InPasses<FloatOutputPass<Codec>, kPassQueries>(task, weights);
}

template <typename Codec>
bool StoreFloatKey(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  if (!AllFinite(row, head_dim)) return false;
  auto* out = reinterpret_cast<typename Codec::Element*>(plane) + slot;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = LanesOf(head_dim - d);
    typename Codec::Element rounded[kLanes];
    Codec::Store16(rounded, Canonical(LoadFirst(row + d, count)));
    for (int i = 0; i < count; ++i) out[(d + i) * kBlockTokens] = rounded[i];
  }
  return true;
}

template <typename Codec>
bool StoreFloatValue(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  if (!AllFinite(row, head_dim)) return false;
  const uint32_t v_dim = (head_dim + kLanes - 1) / kLanes * kLanes;
  auto* out = reinterpret_cast<typename Codec::Element*>(plane) + size_t{slot} * v_dim;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = LanesOf(head_dim - d);
    Codec::Store16(out + d, Canonical(LoadFirst(row + d, count)));
  }
  return true;
}

template <typename Codec>
constexpr kvern::compute::KvDtypeKernels kFloatKernels = {
    .prepare = CopyQuery,
    .scores = FloatScores<Codec>,
    .outputs = FloatOutputs<Codec>,
    .store_k = StoreFloatKey<Codec>,
    .store_v = StoreFloatValue<Codec>,
};

}  // namespace
