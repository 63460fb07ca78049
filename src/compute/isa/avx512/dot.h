// Sums of products of bytes by VNNI. Contracts: ../scalar/dot.h.
#pragma once

#include <cstring>

#include "compute/isa/avx512/vec.h"

namespace {

// Assembly because gcc 12 spills sums that the intrinsic would leave in registers.
KVERN_INLINE __m512i DotBytes(__m512i sum, __m512i u8, __m512i s8) {
#ifdef KVERN_EMULATED  // by compute/emulated/avx512.h, which has no such registers
  return _mm512_dpbusd_epi32(sum, u8, s8);
#else
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u8), "v"(s8));
  return sum;
#endif
}

template <int kMaxWeight, int kOffset>
struct Dot {
  static constexpr int kCapacity = 8;
  static constexpr int kTokens = 8;

  I32x16 sum;

  KVERN_INLINE static Dot Begin(I32x16 start, int32_t sum_q) {
    return {AddInt(start, Set1Int(-kOffset * sum_q))};
  }
  // Assembly keeps the {1to16} broadcast inside the instruction; gcc 12 splits it in two.
  KVERN_INLINE void Add(U8x64 w, const int8_t* quad) {
    struct [[gnu::may_alias, gnu::packed]] Quad {
      int32_t value;
    };
    const auto* q = reinterpret_cast<const Quad*>(quad);
#ifdef KVERN_EMULATED
    sum = _mm512_dpbusd_epi32(sum, w.bytes, _mm512_set1_epi32(q->value));
#else
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w.bytes), "m"(q->value));
#endif
  }
  using Quad = __m512i;
  KVERN_INLINE static Quad Spread(const int8_t* quad) {
    int32_t value;
    std::memcpy(&value, quad, sizeof value);
    return _mm512_set1_epi32(value);
  }
  KVERN_INLINE void Add(U8x64 w, Quad q) { sum = DotBytes(sum, w.bytes, q); }
  KVERN_INLINE I32x16 End() const { return sum; }
};

// The bytes of the weights apart; 8 more of no meaning.
struct WideQuad {
  uint8_t low[4], high[4], unused[8];
};
KVERN_INLINE void StoreWide(WideQuad* quads, I32x16 weights) {
  const __m512i apart =
      _mm512_setr_epi32(0x0C080400, 0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1, 0x0C080400,
                        0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1);
  _mm512_storeu_si512(quads, _mm512_shuffle_epi8(weights, apart));
}

struct WideDot {
  I32x16 low, high;

  KVERN_INLINE static WideDot Begin() { return {Set1Int(0), Set1Int(0)}; }
  struct Quad {
    __m512i low, high;
  };
  KVERN_INLINE static Quad Spread(const WideQuad* quad) {
    int32_t bytes[2];
    std::memcpy(bytes, quad, sizeof bytes);
    return {_mm512_set1_epi32(bytes[0]), _mm512_set1_epi32(bytes[1])};
  }
  KVERN_INLINE void Add(U8x64 v, const Quad& quad) {
    low = DotBytes(low, quad.low, v.bytes);
    high = DotBytes(high, quad.high, v.bytes);
  }
  KVERN_INLINE I32x16 End() const { return AddInt(ShiftLeft<8>(high), low); }
};

}  // namespace
