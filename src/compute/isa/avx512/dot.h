// Sums of products of bytes by VNNI. Contracts: ../scalar/dot.h.
#pragma once

#include "compute/isa/avx512/vec.h"

namespace {

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
#ifdef KVERN_EMULATED  // by compute/emulated/avx512.h, which has no such registers
    sum = _mm512_dpbusd_epi32(sum, w.bytes, _mm512_set1_epi32(q->value));
#else
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w.bytes), "m"(q->value));
#endif
  }
  KVERN_INLINE I32x16 End() const { return sum; }
};

}  // namespace
