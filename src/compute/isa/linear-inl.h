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
// About 2 KB ahead hides the memory latency of one thread.
constexpr size_t kPrefetchBytes = 2048;

KVERN_INLINE const uint8_t* Bytes(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}
KVERN_INLINE F32x16 LoadHalves(const std::byte* p) {
  return LoadF16(reinterpret_cast<const uint16_t*>(p));
}
KVERN_INLINE F32x16 Negate(F32x16 a) { return Mul(a, Set1(-1.0f)); }

// The eight groups of a block as unsigned bytes.
struct Groups {
  U8x64 group[8];
};

KVERN_INLINE Groups UnpackNibbles(const std::byte* quants) {
  Groups result;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const U8x64 v = LoadBytes(Bytes(quants) + 64 * j);
    result.group[j] = AndBytes(v, 15);
    result.group[j + 4] = ExtractBits<4, 15, 0>(v);
  }
  return result;
}
KVERN_INLINE Groups UnpackFiveBits(const std::byte* quants) {
  Groups result = UnpackNibbles(quants);
  const U8x64 fifth = LoadBytes(Bytes(quants) + layout::kNibbleBytes);
  result.group[0] = OrBytes(result.group[0], ExtractBits<0, 1, 4>(fifth));
  result.group[1] = OrBytes(result.group[1], ExtractBits<1, 1, 4>(fifth));
  result.group[2] = OrBytes(result.group[2], ExtractBits<2, 1, 4>(fifth));
  result.group[3] = OrBytes(result.group[3], ExtractBits<3, 1, 4>(fifth));
  result.group[4] = OrBytes(result.group[4], ExtractBits<4, 1, 4>(fifth));
  result.group[5] = OrBytes(result.group[5], ExtractBits<5, 1, 4>(fifth));
  result.group[6] = OrBytes(result.group[6], ExtractBits<6, 1, 4>(fifth));
  result.group[7] = OrBytes(result.group[7], ExtractBits<7, 1, 4>(fifth));
  return result;
}
KVERN_INLINE Groups UnpackSixBits(const std::byte* quants) {
  Groups result = UnpackNibbles(quants);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const U8x64 pairs = LoadBytes(Bytes(quants) + layout::kNibbleBytes + 64 * h);
    U8x64* group = result.group + 4 * h;
    group[0] = OrBytes(group[0], ExtractBits<0, 3, 4>(pairs));
    group[1] = OrBytes(group[1], ExtractBits<2, 3, 4>(pairs));
    group[2] = OrBytes(group[2], ExtractBits<4, 3, 4>(pairs));
    group[3] = OrBytes(group[3], ExtractBits<6, 3, 4>(pairs));
  }
  return result;
}
KVERN_INLINE Groups UnpackWholeBytes(const std::byte* quants) {
  Groups result;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) result.group[g] = LoadBytes(Bytes(quants) + 64 * g);
  return result;
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

// kOffset: what the stored bytes exceed the weights by. kHalves: each half has an integer scale.
template <typename Layout, typename Scales, Groups (*kUnpack)(const std::byte*), int kOffsetValue,
          bool kHasMin, bool kHasHalves = false>
struct Quantized : Layout {
  static constexpr int kOffset = kOffsetValue;
  static constexpr bool kMin = kHasMin;
  static constexpr bool kHalves = kHasHalves;
  static constexpr bool kSmall = Layout::kQuant < 512;  // bytes ≤ 63
  KVERN_INLINE static Groups Unpack(const std::byte* quants) { return kUnpack(quants); }
  KVERN_INLINE static BlockScales Load(const std::byte* scales, const std::byte* super) {
    return Scales::Load(scales, super);
  }
};

template <bool kSmall>
KVERN_INLINE I32x16 DotGroup(I32x16 acc, U8x64 w, const int8_t* quad) {
  if constexpr (kSmall) return Dot4Small(acc, w, quad);
  return Dot4(acc, w, quad);
}

// One packed token-block of a tile.
struct TokenBlock {
  const int8_t* q;
  const float* d;
  const float* s;
  const int32_t* sums;
};

// Σ q_w · q_a of a block, exactly, with the offset taken back.
template <typename Type>
KVERN_INLINE I32x16 BlockDot(const Groups& w, const TokenBlock& x, int t, const std::byte* scales) {
  const int8_t* q = x.q + 32 * t;
  I32x16 low = Set1Int(-Type::kOffset * x.sums[2 * t]);
  I32x16 high = Set1Int(-Type::kOffset * x.sums[2 * t + 1]);
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    low = DotGroup<Type::kSmall>(low, w.group[g], q + 4 * g);
    high = DotGroup<Type::kSmall>(high, w.group[g + 4], q + 16 + 4 * g);
  }
  if constexpr (Type::kHalves) {
    const auto* scale = reinterpret_cast<const int8_t*>(scales);
    low = MulInt(low, LoadI8(scale));
    high = MulInt(high, LoadI8(scale + 16));
  }
  return AddInt(low, high);
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
    const Groups w = Type::Unpack(quants);
    const BlockScales scale = Type::Load(scales, super);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const I32x16 dot = BlockDot<Type>(w, x, t, scales);
      acc[t] = Fma(Mul(scale.d, Set1(x.d[t])), ToFloat(dot), acc[t]);
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
template <typename Type, int kTokens>
KVERN_INLINE void MultiplyFloatTile(const LinearTask& task, const std::byte* weights,
                                    uint32_t first, float* out) {
  const auto* w = reinterpret_cast<const typename Type::Element*>(weights);
  const float* x = reinterpret_cast<const float*>(task.activations) + first;
  F32x16 acc[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) acc[t] = Set1(0.0f);
  for (uint32_t k = 0; k < task.cols; ++k) {
    Prefetch(w + kPrefetchBytes / sizeof(*w));
    const F32x16 lanes = Type::Load16(w);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[t] = Fma(lanes, Set1(x[t]), acc[t]);
    w += kLanes;
    x += task.num_tokens;
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) Store(out + (first + t) * task.out_stride, acc[t]);
}

template <typename Type>
struct QuantizedTile {
  template <int kTokens>
  KVERN_INLINE static void Run(const LinearTask& task, const std::byte* weights, uint32_t first,
                               float* out) {
    MultiplyTile<Type, kTokens>(task, weights, first, out);
  }
};
template <typename Type>
struct FloatTile {
  template <int kTokens>
  KVERN_INLINE static void Run(const LinearTask& task, const std::byte* weights, uint32_t first,
                               float* out) {
    MultiplyFloatTile<Type, kTokens>(task, weights, first, out);
  }
};

// Tokens that one pass over the weights keeps in registers.
constexpr uint32_t kMaxTokens = kMaxAccumulators >= 16 ? kTokenTile : kMaxAccumulators >= 6 ? 2 : 1;

template <typename Tile, int kTokens>
[[gnu::noinline]] void MultiplyRows(const LinearTask& task, uint32_t first) {
  for (uint32_t i = 0; i < task.num_row_tiles; ++i) {
    Tile::template Run<kTokens>(task, task.weights + i * task.tile_bytes, first,
                                task.out + i * kLanes);
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
  for (uint32_t first = 0; first < task.num_tokens; first += kMaxTokens) {
    const uint32_t left = task.num_tokens - first;
    MultiplyPass<Tile, kMaxTokens>(task, first, left < kMaxTokens ? left : kMaxTokens);
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

using TypeQ8_0 = Quantized<layout::Q8_0, Scaled, UnpackWholeBytes, 128, false>;
using TypeQ4_0 = Quantized<layout::Q4_0, Scaled, UnpackNibbles, 8, false>;
using TypeQ4_1 = Quantized<layout::Q4_1, ScaledWithMin, UnpackNibbles, 0, true>;
using TypeQ5_0 = Quantized<layout::Q5_0, Scaled, UnpackFiveBits, 16, false>;
using TypeQ5_1 = Quantized<layout::Q5_1, ScaledWithMin, UnpackFiveBits, 0, true>;
using TypeQ4_K = Quantized<layout::Q4_K, SuperScaledWithMin, UnpackNibbles, 0, true>;
using TypeQ5_K = Quantized<layout::Q5_K, SuperScaledWithMin, UnpackFiveBits, 0, true>;
using TypeQ6_K = Quantized<layout::Q6_K, SuperScaled, UnpackSixBits, 32, false, true>;

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
