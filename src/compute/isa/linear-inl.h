// Linear kernels over the vector of the including file (rule N2). Definition: docs/numerics.md.
//
// One template serves every quantised type: a type says how to unpack the eight groups of a block
// to unsigned bytes, which integer offset to take back, and what the scales of its lanes are.
#include "compute/linear.h"
#include "compute/weight_layout.h"

namespace {

namespace layout = kvern::compute::layout;
using kvern::compute::kTokenTile;
using kvern::compute::LinearTask;
using kvern::compute::TileSlot;

constexpr uint32_t kBlock = layout::kBlock;
// So far ahead hides the memory latency of one thread.
constexpr size_t kPrefetchBytes = 4096;

KVERN_INLINE const uint8_t* Bytes(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}
KVERN_INLINE F32x16 LoadHalves(const std::byte* p) {
  return LoadF16(reinterpret_cast<const uint16_t*>(p));
}
KVERN_INLINE F32x16 Negate(F32x16 a) { return Mul(a, Set1(-1.0f)); }

// Group g (0 … 7) of a block as unsigned bytes. `g` is a constant once its loop is unrolled.
KVERN_INLINE U8x64 Nibbles(const std::byte* quants, int g) {
  const U8x64 v = LoadBytes(Bytes(quants) + 64 * (g % 4));
  return g < 4 ? AndBytes(v, 15) : ExtractBits<4, 15, 0>(v);
}
// The upper bits of group g's weights, moved to bit 4: one of eight bits, one of four pairs.
KVERN_INLINE U8x64 FifthBit(U8x64 v, int g) {
  switch (g) {
    case 0:
      return ExtractBits<0, 1, 4>(v);
    case 1:
      return ExtractBits<1, 1, 4>(v);
    case 2:
      return ExtractBits<2, 1, 4>(v);
    case 3:
      return ExtractBits<3, 1, 4>(v);
    case 4:
      return ExtractBits<4, 1, 4>(v);
    case 5:
      return ExtractBits<5, 1, 4>(v);
    case 6:
      return ExtractBits<6, 1, 4>(v);
    default:
      return ExtractBits<7, 1, 4>(v);
  }
}
KVERN_INLINE U8x64 UpperPair(U8x64 v, int g) {
  switch (g % 4) {
    case 0:
      return ExtractBits<0, 3, 4>(v);
    case 1:
      return ExtractBits<2, 3, 4>(v);
    case 2:
      return ExtractBits<4, 3, 4>(v);
    default:
      return ExtractBits<6, 3, 4>(v);
  }
}
KVERN_INLINE U8x64 FiveBits(const std::byte* quants, int g) {
  const U8x64 fifth = LoadBytes(Bytes(quants) + layout::kNibbleBytes);
  return OrBytes(Nibbles(quants, g), FifthBit(fifth, g));
}
KVERN_INLINE U8x64 SixBits(const std::byte* quants, int g) {
  const U8x64 pairs = LoadBytes(Bytes(quants) + layout::kNibbleBytes + 64 * (g / 4));
  return OrBytes(Nibbles(quants, g), UpperPair(pairs, g));
}
KVERN_INLINE U8x64 WholeBytes(const std::byte* quants, int g) {
  return LoadBytes(Bytes(quants) + 64 * g);
}

// What multiplies the dot (and, with kMin, the sum of activations) of each lane in one block.
struct BlockScales {
  F32x16 d;
  F32x16 m;
};
struct Scaled {  // Q8_0, Q4_0, Q5_0
  KVERN_INLINE static BlockScales Load(const std::byte* scales, const std::byte*) {
    return {LoadHalves(scales), Set1(0.0f)};
  }
};
struct ScaledWithMin {  // Q4_1, Q5_1
  KVERN_INLINE static BlockScales Load(const std::byte* scales, const std::byte*) {
    return {LoadHalves(scales), LoadHalves(scales + 32)};
  }
};
struct SuperScaledWithMin {  // Q4_K, Q5_K
  KVERN_INLINE static BlockScales Load(const std::byte* scales, const std::byte* super) {
    return {Mul(LoadHalves(super), ToFloat(LoadU8(Bytes(scales)))),
            Negate(Mul(LoadHalves(super + 32), ToFloat(LoadU8(Bytes(scales) + 16))))};
  }
};
struct SuperScaled {  // Q6_K: the scales of its halves are integers, folded into the dot
  KVERN_INLINE static BlockScales Load(const std::byte*, const std::byte* super) {
    return {LoadHalves(super), Set1(0.0f)};
  }
};

// kMaxWeight: of a stored byte, which exceeds the weight by kOffset. kHalves: each half of a block
// has an integer scale.
template <typename Layout, typename Scales, U8x64 (*kGroup)(const std::byte*, int), int kMaxWeight,
          int kOffset, bool kHasMin, bool kHasHalves = false>
struct Quantized : Layout {
  using BlockDot = Dot<kMaxWeight, kOffset>;
  static constexpr bool kMin = kHasMin;
  static constexpr bool kHalves = kHasHalves;
  KVERN_INLINE static U8x64 Group(const std::byte* quants, int g) { return kGroup(quants, g); }
  KVERN_INLINE static BlockScales Load(const std::byte* scales, const std::byte* super) {
    return Scales::Load(scales, super);
  }
};

// One block of the tokens of an activation tile.
struct TokenBlock {
  const int8_t* q;
  const float* d;
  const float* s;
  const int32_t* sums;
};

// sums[t] += Σ (w − offset) · q over groups [kFirst, kEnd) of a block, for every token t.
template <typename Type, int kTokens, int kFirst, int kEnd>
KVERN_INLINE void AddGroups(const std::byte* quants, const TokenBlock& x, I32x16* sums) {
  using BlockDot = typename Type::BlockDot;
  constexpr int kSpan = BlockDot::kCapacity < kEnd - kFirst ? BlockDot::kCapacity : kEnd - kFirst;
#pragma GCC unroll 4
  for (int first = kFirst; first < kEnd; first += kSpan) {
    BlockDot dots[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      // The offset of all groups is taken back with the first.
      const int32_t low = kFirst < 4 ? x.sums[2 * t] : 0, high = kEnd > 4 ? x.sums[2 * t + 1] : 0;
      dots[t] = BlockDot::Begin(sums[t], first == kFirst ? low + high : 0);
    }
#pragma GCC unroll 8
    for (int g = first; g < first + kSpan; ++g) {
      const U8x64 w = Type::Group(quants, g);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) dots[t].Add(w, x.q + 32 * t + 4 * g);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[t] = dots[t].End();
  }
}

// The same over a whole block, its halves scaled where the type says so.
template <typename Type, int kTokens>
KVERN_INLINE void BlockSums(const std::byte* quants, const std::byte* scales, const TokenBlock& x,
                            I32x16* sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) sums[t] = Set1Int(0);
  if constexpr (!Type::kHalves) return AddGroups<Type, kTokens, 0, 8>(quants, x, sums);
  AddGroups<Type, kTokens, 0, 4>(quants, x, sums);
  I32x16 high[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) high[t] = Set1Int(0);
  AddGroups<Type, kTokens, 4, 8>(quants, x, high);
  const auto* scale = reinterpret_cast<const int8_t*>(scales);
  const I32x16 low_scale = LoadI8(scale), high_scale = LoadI8(scale + 16);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    sums[t] = AddInt(MulInt(sums[t], low_scale), MulInt(high[t], high_scale));
  }
}

// One row tile times kTokens tokens of an activation tile, from token `first`.
template <typename Type, int kTokens>
KVERN_INLINE void MultiplyTile(const LinearTask& task, const std::byte* weights, uint32_t first,
                               float* out) {
  const uint32_t num_blocks = task.cols / kBlock;
  const size_t super_blocks = Type::kSuperScale == 0 ? 0 : task.cols / layout::kSuperBlock;
  const std::byte* quants = weights + layout::RoundUp64(size_t{num_blocks} * Type::kScale +
                                                        super_blocks * Type::kSuperScale);
  const std::byte* scales = weights;
  const std::byte* super = weights;
  const std::byte* tile = task.activations;
  const size_t tile_tokens = task.num_tokens;
  F32x16 acc[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t] = Set1(0.0f);

  for (uint32_t b = 0; b < num_blocks; ++b) {
    if (Type::kSuperScale != 0 && b % 8 == 0) {
      super = scales;
      scales += Type::kSuperScale;
    }
    for (size_t line = 0; line < Type::kQuant; line += 64) Prefetch(quants + kPrefetchBytes + line);
    const std::byte* floats = tile + 32 * tile_tokens;
    const TokenBlock x = {reinterpret_cast<const int8_t*>(tile) + 32 * first,
                          reinterpret_cast<const float*>(floats) + first,
                          reinterpret_cast<const float*>(floats + 4 * tile_tokens) + first,
                          reinterpret_cast<const int32_t*>(floats + 8 * tile_tokens) + 2 * first};
    I32x16 sums[kTokens];
    BlockSums<Type, kTokens>(quants, scales, x, sums);
    const BlockScales scale = Type::Load(scales, super);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      acc[t] = Fma(Mul(scale.d, Set1(x.d[t])), ToFloat(sums[t]), acc[t]);
      if constexpr (Type::kMin) acc[t] = Fma(scale.m, Set1(x.s[t]), acc[t]);
    }
    quants += Type::kQuant;
    scales += Type::kScale;
    tile += 48 * tile_tokens;
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) Store(out + (first + t) * task.out_stride, acc[t]);
}

// One row tile of float weights: a chain of fused multiply-adds in ascending input order.
struct FloatType {
  using Element = float;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return Load(p); }
};
struct HalfType {
  using Element = uint16_t;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return LoadF16(p); }
};
struct Bfloat16Type {
  using Element = uint16_t;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return LoadBf16(p); }
};
template <typename Type, int kTokens, int kTiles>
KVERN_INLINE void MultiplyFloatTiles(const LinearTask& task, const std::byte* weights,
                                     uint32_t first, float* out) {
  const auto* w = reinterpret_cast<const typename Type::Element*>(weights);
  const size_t tile_elements = task.tile_bytes / sizeof(*w);
  const float* x = reinterpret_cast<const float*>(task.activations) + first;
  F32x16 acc[kTiles][kTokens];
#pragma GCC unroll 4
  for (int i = 0; i < kTiles; ++i) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[i][t] = Set1(0.0f);
  }
  for (uint32_t k = 0; k < task.cols; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < kTiles; ++i) {
      const auto* p = w + i * tile_elements;
      Prefetch(p + kPrefetchBytes / sizeof(*p));
      const F32x16 lanes = Type::Load16(p);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[i][t] = Fma(lanes, Set1(x[t]), acc[i][t]);
    }
    w += kLanes;
    x += task.num_tokens;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTiles; ++i) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      Store(out + (first + t) * task.out_stride + i * kLanes, acc[i][t]);
    }
  }
}

// kMaxTokens: how many tokens one pass over the weights serves. kRowTiles: how many row tiles it
// takes at once, where one has too few chains of additions to keep the units busy.
template <typename Type>
struct QuantizedTile {
  static constexpr int kMaxTokens = Type::BlockDot::kTokens;
  template <int kTokens>
  static constexpr int kRowTiles = 1;
  template <int kTokens, int kTiles>
  KVERN_INLINE static void Run(const LinearTask& task, const std::byte* weights, uint32_t first,
                               float* out) {
    MultiplyTile<Type, kTokens>(task, weights, first, out);
  }
};
template <typename Type>
struct FloatTile {
  static constexpr int kMaxTokens = kVectorRegisters >= 32 ? 8 : kVectorRegisters >= 8 ? 6 : 1;
  template <int kTokens>
  static constexpr int kRowTiles = kTokens == 1   ? 4
                                   : kTokens == 2 ? 2
                                                  : 1;
  template <int kTokens, int kTiles>
  KVERN_INLINE static void Run(const LinearTask& task, const std::byte* weights, uint32_t first,
                               float* out) {
    MultiplyFloatTiles<Type, kTokens, kTiles>(task, weights, first, out);
  }
};

template <typename Tile, int kTokens>
[[gnu::noinline]] void MultiplyRows(const LinearTask& task, uint32_t first) {
  constexpr uint32_t kTiles = Tile::template kRowTiles<kTokens>;
  const std::byte* weights = task.weights;
  float* out = task.out;
  uint32_t left = task.num_row_tiles;
  for (; left >= kTiles; left -= kTiles) {
    Tile::template Run<kTokens, kTiles>(task, weights, first, out);
    weights += kTiles * task.tile_bytes;
    out += kTiles * kLanes;
  }
  for (; left > 0; --left) {
    Tile::template Run<kTokens, 1>(task, weights, first, out);
    weights += task.tile_bytes;
    out += kLanes;
  }
}

// Runs the pass for `count` tokens, 1 … kTokens.
template <typename Tile, int kTokens>
void MultiplyPass(const LinearTask& task, uint32_t first, uint32_t count) {
  if constexpr (kTokens > 1) {
    if (count < kTokens) return MultiplyPass<Tile, kTokens - 1>(task, first, count);
  }
  MultiplyRows<Tile, kTokens>(task, first);
}

template <typename Tile>
void Multiply(const LinearTask& task) {
  constexpr uint32_t kMost = Tile::kMaxTokens;
  for (uint32_t first = 0; first < task.num_tokens;) {
    const uint32_t left = task.num_tokens - first;
    // Two passes share what one cannot take: a pass for a single token is the slowest.
    const uint32_t count = left <= kMost ? left : left < 2 * kMost ? (left + 1) / 2 : kMost;
    MultiplyPass<Tile, kMost>(task, first, count);
    first += count;
  }
}

// --- Activations ---

// Below this largest magnitude a block is zero: its scale would round badly or be subnormal.
constexpr float kSmallestBlock = 0x1p-100f;

struct QuantizedBlock {
  float d;
  float inverse;
};
KVERN_INLINE QuantizedBlock BlockScale(float largest) {
  if (largest < kSmallestBlock) return {0.0f, 0.0f};
  return {largest / 127.0f, 127.0f / largest};
}

bool Quantize(const float* x, uint32_t cols, TileSlot slot) {
  const size_t t = slot.token, tokens = slot.num_tokens;
  I32x16 largest_bits = Set1Int(0);
  for (uint32_t k = 0; k < cols; k += kLanes) {
    largest_bits = MaxInt(largest_bits, AndInt(Bits(Load(x + k)), Set1Int(0x7FFFFFFF)));
  }
  const bool finite = FoldMaxInt(largest_bits) < 0x7F800000;
  for (uint32_t b = 0; b < cols / kBlock; ++b) {
    std::byte* block = slot.tile + b * 48 * tokens;
    const F32x16 low = finite ? Load(x + b * kBlock) : Set1(0.0f);
    const F32x16 high = finite ? Load(x + b * kBlock + kLanes) : Set1(0.0f);
    const I32x16 magnitude = Set1Int(0x7FFFFFFF);
    const float largest = FoldMax(
        Max(FromBits(AndInt(Bits(low), magnitude)), FromBits(AndInt(Bits(high), magnitude))));
    const QuantizedBlock scale = BlockScale(largest);
    const I32x16 q_low = RoundToInt(Mul(low, Set1(scale.inverse)));
    const I32x16 q_high = RoundToInt(Mul(high, Set1(scale.inverse)));
    auto* q = reinterpret_cast<int8_t*>(block) + 32 * t;
    StoreI8(q, q_low);
    StoreI8(q + 16, q_high);
    std::byte* floats = block + 32 * tokens;
    auto* sums = reinterpret_cast<int32_t*>(floats + 8 * tokens) + 2 * t;
    sums[0] = SumInt(q_low);
    sums[1] = SumInt(q_high);
    reinterpret_cast<float*>(floats)[t] = scale.d;
    reinterpret_cast<float*>(floats + 4 * tokens)[t] =
        scale.d * static_cast<float>(sums[0] + sums[1]);
  }
  return finite;
}

void PackFloats(const float* x, uint32_t cols, TileSlot slot) {
  auto* out = reinterpret_cast<float*>(slot.tile) + slot.token;
  for (uint32_t k = 0; k < cols; ++k) out[size_t{k} * slot.num_tokens] = x[k];
}

// --- The table, in the order of WeightFormats() ---

template <typename Type>
constexpr auto kQuantized = Multiply<QuantizedTile<Type>>;
template <typename Type>
constexpr auto kFloat = Multiply<FloatTile<Type>>;

using TypeQ8_0 = Quantized<layout::Q8_0, Scaled, WholeBytes, 255, 128, false>;
using TypeQ4_0 = Quantized<layout::Q4_0, Scaled, Nibbles, 15, 8, false>;
using TypeQ4_1 = Quantized<layout::Q4_1, ScaledWithMin, Nibbles, 15, 0, true>;
using TypeQ5_0 = Quantized<layout::Q5_0, Scaled, FiveBits, 31, 16, false>;
using TypeQ5_1 = Quantized<layout::Q5_1, ScaledWithMin, FiveBits, 31, 0, true>;
using TypeQ4_K = Quantized<layout::Q4_K, SuperScaledWithMin, Nibbles, 15, 0, true>;
using TypeQ5_K = Quantized<layout::Q5_K, SuperScaledWithMin, FiveBits, 31, 0, true>;
using TypeQ6_K = Quantized<layout::Q6_K, SuperScaled, SixBits, 63, 32, false, true>;

}  // namespace

namespace kvern::compute::KVERN_ISA {

extern const LinearKernels kLinear;
const LinearKernels kLinear = {
    .quantize = Quantize,
    .pack_floats = PackFloats,
    .multiply = {kFloat<FloatType>, kFloat<HalfType>, kFloat<Bfloat16Type>, kQuantized<TypeQ8_0>,
                 kQuantized<TypeQ4_0>, kQuantized<TypeQ4_1>, kQuantized<TypeQ5_0>,
                 kQuantized<TypeQ5_1>, kQuantized<TypeQ4_K>, kQuantized<TypeQ5_K>,
                 kQuantized<TypeQ6_K>},
};

}  // namespace kvern::compute::KVERN_ISA
