// Attention over 8-bit K and V by tiles; everything else as avx512 does it.
//
// The planes of q8r lie as a tile wants its second operand: K's lines are rows of a tile already,
// V's once the blocks of a chunk stand together. Sums are exact, so the bits are those of every
// other instruction set.
#include <algorithm>
#include <type_traits>

#define KVERN_ISA amx
#include "compute/isa/avx512/dot.h"

// After the vector that they are made of.
#include "compute/isa/amx/tile.h"
#include "compute/isa/attention_integer-inl.h"

namespace {

using kvern::kChunkBlocks;
using kvern::compute::kMaxChunkQueries;

// Tiles by use.
constexpr int kSums = 0;       // … 3: [queries][16] of four blocks
constexpr int kQueries = 4;    // [queries][64 bytes]
constexpr int kPlane = 5;      // [16][64 bytes] of K or V
constexpr int kQueryRest = 6;  // of a head that is no multiple of 64
constexpr int kPlaneRest = 7;
constexpr uint32_t kSumTiles = 4;

// Fewer fill too little of a tile.
constexpr uint32_t kFewestQueries = 6;

constexpr uint32_t kMostPasses = kMaxChunkQueries / kTileRows;

// Queries in the fewest equal passes. The last begins early rather than be shorter: what it repeats
// comes out the same.
struct QueryPasses {
  uint32_t count, rows, last;

  explicit QueryPasses(uint32_t queries)
      : count((queries + kTileRows - 1) / kTileRows),
        rows((queries + count - 1) / count),
        last(queries - rows) {}
  uint32_t First(uint32_t pass) const { return pass * rows < last ? pass * rows : last; }
};

KVERN_INLINE void ConfigureFor(const QueryPasses& passes, uint32_t rest_bytes) {
  TileShapes shapes;
  for (int tile = kSums; tile <= kQueries; ++tile) shapes.Set(tile, passes.rows, kTileRowBytes);
  shapes.Set(kPlane, kTileRows, kTileRowBytes);
  if (rest_bytes > 0) {
    shapes.Set(kQueryRest, passes.rows, rest_bytes);
    shapes.Set(kPlaneRest, rest_bytes / 4, kTileRowBytes);
  }
  ConfigureTiles(shapes);
}

struct alignas(64) TileSums {
  float bits[kTileRows][kLanes];

  KVERN_INLINE I32x16 Row(uint32_t row) const { return Bits(Load(bits[row])); }
};

// --- Scores ---

// One of up to four blocks at a time, with the number of its tile of sums.
template <typename Use>
KVERN_INLINE void ForSumTiles(uint32_t count, Use use) {
  use(std::integral_constant<int, 0>());
  if (count > 1) use(std::integral_constant<int, 1>());
  if (count > 2) use(std::integral_constant<int, 2>());
  if (count > 3) use(std::integral_constant<int, 3>());
}

// The queries of a pass: their headers apart.
struct PassQueries {
  const std::byte* bytes;
  size_t stride;
  float scale[kTileRows];
  int32_t offset[kTileRows];  // of K's bias

  PassQueries(const ChunkTask& task, uint32_t first, uint32_t rows)
      : stride(QueryFloats(task.head_dim) * sizeof(float)) {
    const auto* at = reinterpret_cast<const std::byte*>(task.queries) + first * stride;
    bytes = at + sizeof(QueryHeader);
    for (uint32_t i = 0; i < rows; ++i, at += stride) {
      QueryHeader header;
      std::memcpy(&header, at, sizeof header);
      scale[i] = header.scale, offset[i] = -128 * header.sum;
    }
  }
};

// Sums of `count` blocks from their planes `k`, each to its own of `sums`.
KVERN_INLINE void SumScores(const PassQueries& queries, const uint8_t* const* k, uint32_t count,
                            uint32_t dim_bytes, TileSums* sums) {
  ForSumTiles(count, [](auto i) { ZeroTile<kSums + i>(); });
  uint32_t done = 0;
  for (; done + kTileRowBytes <= dim_bytes; done += kTileRowBytes) {
    LoadTile<kQueries>(queries.bytes + done, queries.stride);
    ForSumTiles(count, [&](auto i) {
      LoadTile<kPlane>(k[i] + size_t{done} * kLanes, kTileRowBytes);
      DotSignedUnsigned<kSums + i, kQueries, kPlane>();
    });
  }
  if (done < dim_bytes) {
    LoadTile<kQueryRest>(queries.bytes + done, queries.stride);
    ForSumTiles(count, [&](auto i) {
      LoadTile<kPlaneRest>(k[i] + size_t{done} * kLanes, kTileRowBytes);
      DotSignedUnsigned<kSums + i, kQueryRest, kPlaneRest>();
    });
  }
  ForSumTiles(count, [&](auto i) { StoreTile<kSums + i>(&sums[i], kTileRowBytes); });
}

// Sums of a block as scores, rows of kChunkTokens.
KVERN_INLINE void ScaleTile(const PassQueries& queries, uint32_t rows, const TileSums& sums,
                            F32x16 scales, float* scores) {
  for (uint32_t i = 0; i < rows; ++i, scores += kChunkTokens) {
    const I32x16 sum = AddInt(sums.Row(i), Set1Int(queries.offset[i]));
    Store(scores, Mul(Mul(ToFloat(sum), scales), Set1(queries.scale[i])));
  }
}

void TileScores(const ChunkTask& task, float* scores) {
  if (task.num_queries < kFewestQueries) return IntegerScores<KvQ8r>(task, scores);
  const QueryPasses passes(task.num_queries);
  const size_t scale_offset = KvQ8r::Plane::KeyScales(task.head_dim);  // after the lines
  const uint32_t dim_bytes = KvQ8r::Plane::KeyLines(task.head_dim) * 4;
  for (uint32_t b = 0; task.ahead != nullptr && b < task.num_blocks; ++b) {
    for (size_t i = 0; i < scale_offset; i += 64) Prefetch(task.ahead[b] + i);
  }
  ConfigureFor(passes, dim_bytes % kTileRowBytes);
  for (uint32_t pass = 0; pass < passes.count; ++pass) {
    const uint32_t first = passes.First(pass);
    const PassQueries queries(task, first, passes.rows);
    float* out = scores + first * kChunkTokens;
    for (uint32_t block = 0; block < task.num_blocks; block += kSumTiles) {
      const uint32_t count = std::min(kSumTiles, task.num_blocks - block);
      const uint8_t* k[kSumTiles];
      for (uint32_t b = 0; b < count; ++b) k[b] = BytesOf(task.blocks[block + b], task.k_offset);
      TileSums sums[kSumTiles];
      SumScores(queries, k, count, dim_bytes, sums);
      for (uint32_t b = 0; b < count; ++b, out += kBlockTokens) {
        ScaleTile(queries, passes.rows, sums[b], LoadScales(k[b] + scale_offset), out);
      }
    }
  }
  ReleaseTiles();
}

// --- Outputs ---

constexpr uint32_t kHalfBlocks = kTileRowBytes / kBlockTokens;  // positions of a tile's row

// The weights of all queries times the scales of V, in integers of two bytes, which lie apart.
struct alignas(64) TileWeights {
  uint8_t low[kMaxChunkQueries][kChunkTokens];
  uint8_t high[kMaxChunkQueries][kChunkTokens];
  float scale[kMaxChunkQueries];
};

// The low bytes of the lanes of four vectors in order, and their second bytes.
KVERN_INLINE void SplitBytes(const I32x16* w, uint8_t* low, uint8_t* high) {
  // Of each four lanes the low bytes, then the second bytes, in half of their 16 bytes.
  const __m512i to_first =
      _mm512_setr_epi32(0x0C080400, 0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1, 0x0C080400,
                        0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1);
  const __m512i to_second =
      _mm512_setr_epi32(-1, -1, 0x0C080400, 0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1,
                        0x0C080400, 0x0D090501, -1, -1, 0x0C080400, 0x0D090501);
  const auto pair = [&](I32x16 a, I32x16 b) {
    return FromBits(
        _mm512_or_si512(_mm512_shuffle_epi8(a, to_first), _mm512_shuffle_epi8(b, to_second)));
  };
  const F32x16 a = pair(w[0], w[1]), b = pair(w[2], w[3]);
  const __m512i lows = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 16, 20, 24, 28, 18, 22, 26, 30);
  const __m512i highs = _mm512_add_epi32(lows, _mm512_set1_epi32(1));
  _mm512_storeu_si512(low, Bits(_mm512_permutex2var_ps(a, lows, b)));
  _mm512_storeu_si512(high, Bits(_mm512_permutex2var_ps(a, highs, b)));
}

// `scales` are 0 for the blocks that the chunk lacks. kBlocks: how many it has, where that is
// known.
template <uint32_t kBlocks>
KVERN_INLINE void SplitWeights(const F32x16* scales, const float* weights, uint32_t num_blocks,
                               uint32_t query, TileWeights& out) {
  const uint32_t count = kBlocks > 0 ? kBlocks : num_blocks;
  F32x16 scaled[kChunkBlocks];
  F32x16 largest = Set1(0.0f);
#pragma GCC unroll 8
  for (uint32_t b = 0; b < kChunkBlocks; ++b) {
    scaled[b] = b < count ? Mul(Load(weights + b * kBlockTokens), scales[b]) : Set1(0.0f);
    largest = Max(largest, scaled[b]);
  }
  const float max = FoldMax(largest);
  const F32x16 inverse = Set1(WeightInverse(max));
#pragma GCC unroll 2
  for (uint32_t first = 0; first < kChunkBlocks; first += kHalfBlocks) {
    I32x16 rounded[kHalfBlocks];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kHalfBlocks; ++i) {
      rounded[i] = RoundToInt(Mul(scaled[first + i], inverse));
    }
    SplitBytes(rounded, out.low[query] + first * kBlockTokens,
               out.high[query] + first * kBlockTokens);
  }
  out.scale[query] = max * (1.0f / kWeightLimit);
}

template <uint32_t kBlocks>
[[gnu::noinline]] void SplitAllWeights(const ChunkTask& task, const float* weights,
                                       TileWeights& out) {
  F32x16 scales[kChunkBlocks];
  for (uint32_t b = 0; b < kChunkBlocks; ++b) {
    scales[b] =
        b < task.num_blocks ? LoadScales(BytesOf(task.blocks[b], task.v_offset)) : Set1(0.0f);
  }
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    SplitWeights<kBlocks>(scales, weights + i * kChunkTokens, task.num_blocks, i, out);
  }
}

// Sixteen dimensions of all positions: rows of four positions, as a tile holds them.
struct alignas(64) TileValues {
  uint8_t rows[kChunkQuads][kTileRowBytes];

  KVERN_INLINE void Gather(const ChunkTask& task, uint32_t line) {
    const size_t stride = KvQ8r::Plane::ValueLines(task.v_dim) * size_t{64};
    const size_t first = KvQ8r::Plane::kValueLines + line * 64;
    for (uint32_t b = 0; b < task.num_blocks; ++b) {
      const uint8_t* values = BytesOf(task.blocks[b], task.v_offset + first);
      for (uint32_t t = 0; t < 4; ++t) {
        _mm512_storeu_si512(rows[4 * b + t], LoadBytes(values + t * stride).bytes);
      }
      if (task.ahead == nullptr) continue;
      const uint8_t* next = BytesOf(task.ahead[task.num_blocks + b], first);
      for (uint32_t t = 0; t < 4; ++t) Prefetch(next + t * stride);
    }
    // Weights of 0 multiply the rest of a half; it must only be readable.
  }
};

struct WeightedSums {
  TileSums low, high;
};

// One pass over what `values` gathered.
KVERN_INLINE void SumOutputs(const TileWeights& split, const TileValues& values, uint32_t first,
                             uint32_t num_blocks, WeightedSums& sums) {
  ZeroTile<0>();
  ZeroTile<1>();
  for (uint32_t half = 0; half * kHalfBlocks < num_blocks; ++half) {
    LoadTile<kPlane>(values.rows[half * kTileRows], kTileRowBytes);
    LoadTile<2>(split.low[first] + half * kTileRowBytes, kChunkTokens);
    DotUnsignedSigned<0, 2, kPlane>();
    LoadTile<3>(split.high[first] + half * kTileRowBytes, kChunkTokens);
    DotUnsignedSigned<1, 3, kPlane>();
  }
  StoreTile<0>(&sums.low, kTileRowBytes);
  StoreTile<1>(&sums.high, kTileRowBytes);
}

void TileOutputs(const ChunkTask& task, const float* weights) {
  if (task.num_queries < kFewestQueries) return IntegerOutputs<KvQ8r>(task, weights);
  TileWeights split;
  if (task.num_blocks == kChunkBlocks) {
    SplitAllWeights<kChunkBlocks>(task, weights, split);
  } else {
    SplitAllWeights<0>(task, weights, split);
  }
  const QueryPasses passes(task.num_queries);
  ConfigureFor(passes, /*rest_bytes=*/0);
  TileValues values;
  for (uint32_t line = 0; line < KvQ8r::Plane::ValueLines(task.v_dim); ++line) {
    values.Gather(task, line);
    // Sums leave all tiles before they are read: a store takes its time.
    WeightedSums sums[kMostPasses];
    for (uint32_t pass = 0; pass < passes.count; ++pass) {
      SumOutputs(split, values, passes.First(pass), task.num_blocks, sums[pass]);
    }
    for (uint32_t pass = 0; pass < passes.count; ++pass) {
      const uint32_t first = passes.First(pass);
      float* out = task.partials + first * PartialFloats(task.v_dim) + 16 + line * kLanes;
      for (uint32_t i = 0; i < passes.rows; ++i, out += PartialFloats(task.v_dim)) {
        const I32x16 sum = AddInt(ShiftLeft<8>(sums[pass].high.Row(i)), sums[pass].low.Row(i));
        Store(out, Mul(ToFloat(sum), Set1(split.scale[first + i])));
      }
    }
  }
  ReleaseTiles();
}

template <>
constexpr kvern::compute::KvDtypeKernels kIntegerKernels<KvQ8r> = {
    .prepare = PrepareQuery,
    .scores = TileScores,
    .outputs = TileOutputs,
    .store_k = StoreIntegerKey<KvQ8r>,
    .store_v = StoreIntegerValue<KvQ8r>,
};

}  // namespace

#include "compute/isa/attention-inl.h"
