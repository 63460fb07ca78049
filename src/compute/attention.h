// Attention over a paged K/V cache, one KV chunk at a time (rule N3).
//
// The key axis is cut into chunks of kChunkTokens at absolute positions. A chunk gives each query a
// partial: the maximum of its visible scores, the sum of their exponentials, and the values
// weighted by them. Partials of a query merge in ascending chunk order. Which queries share a call,
// and who computes which chunk, never changes a bit. Definition: docs/numerics.md.
//
// Queries come scaled by log2(e)/sqrt(head_dim), so that weights are powers of two.
// Plain functions on plain data; safe from any thread on disjoint outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kv_dtype.h"
#include "kvern/paged_view.h"

namespace kvern::compute {

inline constexpr uint32_t kMaxChunkQueries = 32;
inline constexpr uint32_t kMaxHeadDim = 1024;  // kernels keep a row on the stack

// Keys of a chunk that a query sees: tokens [first, end) counted from the chunk's start.
struct VisibleRange {
  uint32_t first;
  uint32_t end;
  bool empty() const { return first >= end; }
};

// The partial of a query: f32 {max, sum, 14 unused, out[v_dim]}.
constexpr size_t PartialFloats(uint32_t v_dim) { return 16 + size_t{v_dim}; }

// What a query takes that the kernels of a K dtype have prepared.
constexpr uint32_t QueryFloats(uint32_t head_dim) { return head_dim < 4 ? 4 : head_dim; }

// Queries of one KV head against one chunk.
struct ChunkTask {
  const float* queries;  // [num_queries][QueryFloats(head_dim)], prepared
  uint32_t num_queries;  // ≤ kMaxChunkQueries
  uint32_t head_dim;
  uint32_t v_dim;
  std::byte* const* blocks;  // [num_blocks], of this chunk
  uint32_t num_blocks;       // 1 … kChunkBlocks
  // [2 · num_blocks] planes that a later call reads, fetched meanwhile; may be null.
  const std::byte* const* ahead = nullptr;
  size_t k_offset;  // of the K and V planes in a block
  size_t v_offset;
  const VisibleRange* visible;  // [num_queries]; an empty range gives a partial of no meaning
  float* partials;              // [num_queries] of PartialFloats(v_dim)
};

// What depends on how K or V are stored.
struct KvDtypeKernels {
  // A query as `scores` reads it: [head_dim] floats to QueryFloats(head_dim). By K dtype.
  void (*prepare)(const float* query, uint32_t head_dim, float* out);
  // scores[q][t] = K[t]·q for all tokens of the blocks; rows of kChunkTokens floats. By K dtype.
  void (*scores)(const ChunkTask& task, float* scores);
  // Writes out of the partials: weights × V. By V dtype.
  void (*outputs)(const ChunkTask& task, const float* weights);
  // Stores one token's row into slot `slot` of a plane. Values canonicalise (rule N6): below 2⁻³⁰
  // to +0, beyond ±65504 to that. False if a value is not finite: its request must fail.
  bool (*store_k)(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane);
  bool (*store_v)(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane);
};

struct AttentionKernels {
  KvDtypeKernels dtypes[kNumKvDtypes];
  const KvDtypeKernels& Of(KvDtype dtype) const { return dtypes[static_cast<size_t>(dtype)]; }
  // Turns scores into weights in place (0 where not visible) and writes max and sum of the
  // partials.
  void (*weights)(const ChunkTask& task, float* scores);
  // state ← state merged with partial, both of PartialFloats(v_dim).
  void (*merge)(float* state, const float* partial, uint32_t v_dim);
  // out[head_dim] = the state's weighted mean.
  void (*finish)(const float* state, uint32_t head_dim, float* out);
};

// One chunk: scores, weights, outputs.
void AttendChunk(const AttentionKernels& kernels, KvDtype k_dtype, KvDtype v_dtype,
                 const ChunkTask& task);

// The keys of chunk `chunk` that the query at `position` sees; window 0 means all before it.
VisibleRange VisibleInChunk(uint32_t position, uint32_t window, uint32_t chunk);

}  // namespace kvern::compute
