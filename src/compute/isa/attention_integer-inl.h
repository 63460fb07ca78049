// Attention kernels of K and V as integers with a scale a token (docs/numerics.md, "Integer K and
// V").
//
// Sums of integer products are exact, so their order is free. What rounds: a product of the sum
// with the scales for each score, and one with the weights' scale for each output.
#pragma once

#include <bit>
#include <cstring>

#include "compute/isa/attention_common-inl.h"
#include "compute/kv_dtype/q4r-inl.h"
#include "compute/kv_dtype/q8r-inl.h"

namespace {

using kvern::compute::kMaxHeadDim;

constexpr int kQueryLimit = 127;
constexpr float kWeightLimit = 32767;
constexpr uint32_t kChunkQuads = kChunkTokens / 4;

// What precedes the bytes of a prepared query, which are padded to whole quads.
struct QueryHeader {
  float scale;
  int32_t sum;  // of its bytes
};

// --- Rows ---

KVERN_INLINE float RootOf(uint32_t n) {  // 1/√n
  float root = 1.0f;
  for (; n >= 4; n /= 4) root *= 0.5f;
  return n == 2 ? root * 0x1.6a09e6p-1f : root;
}
KVERN_INLINE void RotateBlock(float* x, uint32_t n) {
  for (uint32_t stride = n / 2; stride >= kLanes; stride /= 2) {
    for (uint32_t first = 0; first < n; first += 2 * stride) {
      for (uint32_t i = first; i < first + stride; i += kLanes) {
        const F32x16 a = Load(x + i), b = Load(x + i + stride);
        Store(x + i, Add(a, b));
        Store(x + i + stride, Sub(a, b));
      }
    }
  }
  const F32x16 root = Set1(RootOf(n));
  for (uint32_t i = 0; i < n; i += kLanes) {
    F32x16 v = Butterfly<4>(Butterfly<8>(Load(x + i)));
    v = Butterfly<1>(Butterfly<2>(v));
    Store(x + i, Mul(v, root));
  }
}
KVERN_INLINE void RotateSmallBlock(float* x, uint32_t n) {
  for (uint32_t stride = n / 2; stride > 0; stride /= 2) {
    for (uint32_t i = 0; i < n; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
  const float root = RootOf(n);
  for (uint32_t i = 0; i < n; ++i) x[i] *= root;
}
// x ← H·x / √n in blocks of n, the powers of two whose sum is `dim`, the largest first. H: strides
// n/2, n/4, … 1; (a, b) ← (a + b, a − b).
KVERN_INLINE void Rotate(float* x, uint32_t dim) {
  for (uint32_t n = kMaxHeadDim; n > 0; n /= 2) {
    if ((dim & n) == 0) continue;
    if (n >= kLanes) {
      RotateBlock(x, n);
    } else {
      RotateSmallBlock(x, n);
    }
    x += n;
  }
}

// The largest magnitude; of what is not finite, something that is not.
KVERN_INLINE float LargestMagnitude(const float* x, uint32_t dim) {
  I32x16 largest = Set1Int(0);
  for (uint32_t d = 0; d < dim; d += kLanes) {
    largest = MaxInt(largest, AndInt(Bits(Load(x + d)), Set1Int(0x7FFFFFFF)));
  }
  return std::bit_cast<float>(FoldMaxInt(largest));
}

// clamp(rne(x · inverse), ±limit), and the sum of them.
KVERN_INLINE int32_t RoundRow(const float* x, uint32_t dim, float inverse, float limit, int8_t* q) {
  I32x16 sum = Set1Int(0);
  for (uint32_t d = 0; d < dim; d += kLanes) {
    const F32x16 y = Mul(Load(x + d), Set1(inverse));
    const F32x16 low = Set1(-limit), high = Set1(limit);
    const F32x16 above = SelectGreaterEqual(y, low, y, low);
    const I32x16 rounded = RoundToInt(SelectGreaterEqual(high, above, above, high));
    sum = AddInt(sum, rounded);
    StoreI8(q + d, rounded);
  }
  return SumInt(sum);
}

// One row as integers of the codec, and zeros to the end of their line, with the f16 bits of their
// scale. False if a value is not finite.
template <typename Codec, bool kRotated>
KVERN_INLINE bool QuantizeRow(const float* row, uint32_t dim, int8_t* q, uint16_t& scale_bits) {
  if (!AllFinite(row, dim)) return false;
  alignas(64) float x[kMaxHeadDim];
  for (uint32_t d = 0; d < dim; d += kLanes) {
    Store(x + d, Canonical(LoadFirst(row + d, LanesOf(dim - d))));
  }
  if (kRotated) Rotate(x, dim);
  std::memset(q + dim / 32 * 32, 0, 32);
  const float largest = LargestMagnitude(x, dim);
  uint16_t half[kLanes];
  const float step = largest * (1.0f / Codec::kLimit);
  StoreF16(half, Set1(step < kLargestStored ? step : kLargestStored));
  const float scale = FirstLane(LoadF16(half));
  RoundRow(x, dim, scale > 0.0f ? 1.0f / scale : 0.0f, Codec::kLimit, q);
  scale_bits = half[0];
  return true;
}

KVERN_INLINE void PutScale(std::byte* scales, uint32_t slot, uint16_t scale) {
  std::memcpy(scales + slot * sizeof scale, &scale, sizeof scale);
}

template <typename Codec>
bool StoreIntegerKey(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  alignas(64) int8_t q[kMaxHeadDim + 32];
  uint16_t scale = 0;
  if (!QuantizeRow<Codec, /*kRotated=*/true>(row, head_dim, q, scale)) return false;
  PutScale(plane + Codec::Plane::KeyScales(head_dim), slot, scale);
  constexpr uint32_t kUnits = Codec::Plane::kUnitsPerLine;
  auto* const bytes = reinterpret_cast<uint8_t*>(plane) + slot * 4;
  for (uint32_t d = 0; d < Codec::Plane::KeyLines(head_dim) * kUnits * 4; ++d) {
    const uint32_t unit = d / 4;
    Codec::PutKey(bytes + unit / kUnits * 64 + d % 4, unit % kUnits, q[d]);
  }
  return true;
}

template <typename Codec>
bool StoreIntegerValue(const float* row, uint32_t head_dim, uint32_t slot, std::byte* plane) {
  alignas(64) int8_t q[kMaxHeadDim + 32];
  uint16_t scale = 0;
  if (!QuantizeRow<Codec, /*kRotated=*/false>(row, head_dim, q, scale)) return false;
  PutScale(plane, slot, scale);
  const uint32_t v_dim = (head_dim + kLanes - 1) / kLanes * kLanes;
  constexpr uint32_t kUnits = Codec::Plane::kUnitsPerLine;
  const size_t first = size_t{slot} / 4 * Codec::Plane::ValueLines(v_dim) * 64 + slot % 4;
  auto* const bytes = reinterpret_cast<uint8_t*>(plane) + Codec::Plane::kValueLines + first;
  for (uint32_t d = 0; d < Codec::Plane::ValueLines(v_dim) * kUnits * kLanes; ++d) {
    const uint32_t unit = d / kLanes;
    Codec::PutValue(bytes + unit / kUnits * 64 + d % kLanes * 4, unit % kUnits, q[d]);
  }
  return true;
}

// Too small to divide by: a query of zeros. One that is not finite scores NaN, as a float one does.
inline void PrepareQuery(const float* query, uint32_t head_dim, float* out) {
  alignas(64) float x[kMaxHeadDim];
  alignas(64) int8_t q[kMaxHeadDim];
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    Store(x + d, LoadFirst(query + d, LanesOf(head_dim - d)));
  }
  Rotate(x, head_dim);
  const float largest = LargestMagnitude(x, head_dim);
  const bool finite = largest <= 0x1.fffffep127f, usable = finite && largest >= 0x1p-100f;
  QueryHeader header = {};
  header.scale = usable ? largest * (1.0f / kQueryLimit) : finite ? 0.0f : __builtin_nanf("");
  std::memset(q, 0, (head_dim + kLanes - 1) / kLanes * kLanes);
  if (usable) header.sum = RoundRow(x, head_dim, kQueryLimit / largest, kQueryLimit, q);
  auto* const bytes = reinterpret_cast<std::byte*>(out);
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + sizeof header, q, (head_dim + 3) / 4 * 4);
}

// --- Scores ---

KVERN_INLINE const uint8_t* BytesOf(const std::byte* block, size_t offset) {
  return reinterpret_cast<const uint8_t*>(block + offset);
}
KVERN_INLINE F32x16 LoadScales(const uint8_t* scales) {
  return LoadF16(reinterpret_cast<const uint16_t*>(scales));
}

// Sums of a tile as scores, rows of kChunkTokens.
template <typename Codec, int kQueries, int kBlocks>
KVERN_INLINE void ScaleScores(const ChunkTask& task, const uint8_t* const* k, const float* scale,
                              const I32x16 (*sums)[kBlocks], float* scores) {
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    const F32x16 scales = LoadScales(k[b] + Codec::Plane::KeyScales(task.head_dim));
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      Store(scores + i * kChunkTokens + b * kBlockTokens,
            Mul(Mul(ToFloat(sums[i][b]), scales), Set1(scale[i])));
    }
  }
}

// Scores of kQueries queries against kBlocks blocks. With kStream, a plane ahead is fetched for
// each.
template <typename Codec, int kQueries, int kBlocks, bool kStream>
KVERN_INLINE void IntegerScoreTile(const ChunkTask& task, uint32_t query, uint32_t block,
                                   float* scores) {
  using BlockDot = typename Codec::KeyDot;
  constexpr uint32_t kUnits = Codec::Plane::kUnitsPerLine;
  constexpr uint32_t kSpan = 8 / kUnits;  // lines whose sums fit between Begin and End
  static_assert(BlockDot::kCapacity >= 8);
  const uint32_t num_units = (task.head_dim + 3) / 4;
  const uint8_t* k[kBlocks];
  const uint8_t* next[kBlocks];
  const int8_t* q[kQueries];
  float scale[kQueries];
  I32x16 sums[kQueries][kBlocks];
  int32_t offsets[kQueries];  // taken back once
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    k[b] = BytesOf(task.blocks[block + b], task.k_offset);
    next[b] = kStream ? BytesOf(task.ahead[block + b], 0) : nullptr;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const float* at = task.queries + (query + i) * size_t{QueryFloats(task.head_dim)};
    QueryHeader header;
    std::memcpy(&header, at, sizeof header);
    q[i] = reinterpret_cast<const int8_t*>(at) + sizeof header;
    scale[i] = header.scale, offsets[i] = header.sum;
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) sums[i][b] = Set1Int(0);
  }
  const uint32_t num_lines = Codec::Plane::KeyLines(task.head_dim);
  for (uint32_t line = 0; line < num_lines;) {
    BlockDot dots[kQueries][kBlocks];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) dots[i][b] = BlockDot::Begin(sums[i][b], offsets[i]);
      offsets[i] = 0;
    }
    const uint32_t end = num_lines - line < kSpan ? num_lines : line + kSpan;
    for (; line < end; ++line) {
#pragma GCC unroll 2
      for (uint32_t n = 0; n < kUnits; ++n) {
        if (n > 0 && line * kUnits + n >= num_units) break;
        U8x64 keys[kBlocks];
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
          keys[b] = Codec::LoadKeys(k[b] + line * 64, static_cast<int>(n));
          if (kStream && n == 0) Prefetch(next[b] + line * 64);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
          const auto quad = BlockDot::Spread(q[i] + (line * kUnits + n) * 4);
#pragma GCC unroll 4
          for (int b = 0; b < kBlocks; ++b) dots[i][b].Add(keys[b], quad);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) sums[i][b] = dots[i][b].End();
    }
  }
  ScaleScores<Codec, kQueries, kBlocks>(task, k, scale, sums,
                                        scores + query * kChunkTokens + block * kBlockTokens);
}

// Sums that a tile keeps in registers: of kQueries queries, so many blocks.
constexpr int ScoreBlocks(int queries) { return kVectorRegisters < 32 ? 1 : queries <= 6 ? 4 : 2; }

template <typename Codec>
struct IntegerScorePass {
  template <int kQueries, bool kStream>
  [[gnu::noinline]] static void Run(uint32_t query, const ChunkTask& task, float* scores) {
    constexpr int kBlocks = ScoreBlocks(kQueries);
    uint32_t block = 0;
    for (; block + kBlocks <= task.num_blocks; block += kBlocks) {
      IntegerScoreTile<Codec, kQueries, kBlocks, kStream>(task, query, block, scores);
    }
    for (; block < task.num_blocks; ++block) {
      IntegerScoreTile<Codec, kQueries, 1, kStream>(task, query, block, scores);
    }
  }
};

template <typename Codec>
void IntegerScores(const ChunkTask& task, float* scores) {
  constexpr int kPass = kVectorRegisters >= 32 ? 6 : kVectorRegisters >= 8 ? 3 : 1;
  InPasses<IntegerScorePass<Codec>, kPass>(task, scores);
}

// --- Outputs ---

// The weights of a query times the scales of V, in integers.
struct IntegerWeights {
  WideQuad quads[kChunkQuads];
  float scale;
};

// What turns weights whose largest is `max` into integers.
KVERN_INLINE float WeightInverse(float max) { return max >= 1e-30f ? kWeightLimit / max : 0.0f; }

template <typename Codec>
KVERN_INLINE void RoundWeights(const ChunkTask& task, const float* weights, IntegerWeights& out) {
  alignas(64) float scaled[kChunkTokens];
  F32x16 largest = Set1(0.0f);
  for (uint32_t b = 0; b < task.num_blocks; ++b) {
    const F32x16 scales = LoadScales(BytesOf(task.blocks[b], task.v_offset));
    const F32x16 w = Mul(Load(weights + b * kBlockTokens), scales);
    Store(scaled + b * kBlockTokens, w);
    largest = Max(largest, w);
  }
  const float max = FoldMax(largest);
  const F32x16 inverse = Set1(WeightInverse(max));
  for (uint32_t b = 0; b < task.num_blocks; ++b) {
    StoreWide(out.quads + b * 4, RoundToInt(Mul(Load(scaled + b * kBlockTokens), inverse)));
  }
  out.scale = max * (1.0f / kWeightLimit);
}

// Outputs of kQueries queries in kLines lines of dimensions from `line`. With kStream, a plane
// ahead is fetched for each block.
template <typename Codec, int kQueries, int kLines, bool kStream>
KVERN_INLINE void IntegerOutputTile(const ChunkTask& task, const IntegerWeights* weights,
                                    uint32_t query, uint32_t line) {
  constexpr int kUnits = Codec::Plane::kUnitsPerLine, kVectors = kLines * kUnits;
  const uint32_t num_lines = Codec::Plane::ValueLines(task.v_dim);
  WideDot dots[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) dots[i][c] = WideDot::Begin();
  }
  for (uint32_t b = 0; b < task.num_blocks; ++b) {
    const size_t first = Codec::Plane::kValueLines + line * 64;
    const uint8_t* values = BytesOf(task.blocks[b], task.v_offset + first);
    const uint8_t* next = kStream ? BytesOf(task.ahead[task.num_blocks + b], first) : nullptr;
    for (uint32_t t = 0; t < 4; ++t) {
      U8x64 v[kVectors];
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) {
        v[c] = Codec::LoadValues(values + c / kUnits * 64, c % kUnits);
        if (kStream && c % kUnits == 0) Prefetch(next + c / kUnits * 64);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kQueries; ++i) {
        const auto quad = WideDot::Spread(weights[query + i].quads + b * 4 + t);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) dots[i][c].Add(v[c], quad);
      }
      values += num_lines * 64;
      if (kStream) next += num_lines * 64;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    float* out = task.partials + (query + i) * PartialFloats(task.v_dim) + 16;
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      const uint32_t dim = (line * kUnits + c) * kLanes;
      if (c % kUnits > 0 && dim >= task.v_dim) break;  // the second half of the last line
      Store(out + dim, Mul(ToFloat(dots[i][c].End()), Set1(weights[query + i].scale)));
    }
  }
}

template <typename Codec>
struct IntegerOutputPass {
  template <int kQueries, bool kStream>
  [[gnu::noinline]] static void Run(uint32_t query, const ChunkTask& task,
                                    const IntegerWeights* weights) {
    constexpr int kUnits = Codec::Plane::kUnitsPerLine;
    constexpr int kLines = kVectorRegisters >= 32 ? 4 / kUnits : 1;
    const uint32_t num_lines = Codec::Plane::ValueLines(task.v_dim);
    uint32_t line = 0;
    for (; line + kLines <= num_lines; line += kLines) {
      IntegerOutputTile<Codec, kQueries, kLines, kStream>(task, weights, query, line);
    }
    for (; line < num_lines; ++line) {
      IntegerOutputTile<Codec, kQueries, 1, kStream>(task, weights, query, line);
    }
  }
};

template <typename Codec>
void IntegerOutputs(const ChunkTask& task, const float* weights) {
  alignas(64) IntegerWeights rounded[kvern::compute::kMaxChunkQueries];
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    RoundWeights<Codec>(task, weights + i * kChunkTokens, rounded[i]);
  }
  constexpr int kPass = kVectorRegisters >= 32 ? 3 : kVectorRegisters >= 8 ? 2 : 1;
  const IntegerWeights* const all = rounded;
  InPasses<IntegerOutputPass<Codec>, kPass>(task, all);
}

template <typename Codec>
constexpr kvern::compute::KvDtypeKernels kIntegerKernels = {
    .prepare = PrepareQuery,
    .scores = IntegerScores<Codec>,
    .outputs = IntegerOutputs<Codec>,
    .store_k = StoreIntegerKey<Codec>,
    .store_v = StoreIntegerValue<Codec>,
};

}  // namespace
