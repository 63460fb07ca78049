// Sums of products of bytes by AVX-VNNI, on the vector of AVX2. Contracts: ../scalar/dot.h.
#pragma once

#include "compute/isa/avx2/vec.h"

namespace {

template <int kMaxWeight, int kOffset>
struct Dot {
  static constexpr int kCapacity = 8;
  static constexpr int kTokens = 4;

  I32x16 sum;

  KVERN_INLINE static Dot Begin(I32x16 start, int32_t sum_q) {
    return {AddInt(start, Set1Int(-kOffset * sum_q))};
  }
  using Quad = __m256i;
  KVERN_INLINE static Quad Spread(const int8_t* quad) {
    int32_t value;
    std::memcpy(&value, quad, sizeof value);
    return _mm256_set1_epi32(value);
  }
  KVERN_INLINE void Add(U8x64 w, const int8_t* quad) { Add(w, Spread(quad)); }
  KVERN_INLINE void Add(U8x64 w, Quad q) {
    sum = {_mm256_dpbusd_avx_epi32(sum.low, w.low, q),
           _mm256_dpbusd_avx_epi32(sum.high, w.high, q)};
  }
  KVERN_INLINE I32x16 End() const { return sum; }
};

// The bytes of the weights apart; 8 more of no meaning.
struct WideQuad {
  uint8_t low[4], high[4], unused[8];
};
KVERN_INLINE void StoreWide(WideQuad* quads, I32x16 weights) {
  const __m256i apart =
      _mm256_setr_epi32(0x0C080400, 0x0D090501, -1, -1, 0x0C080400, 0x0D090501, -1, -1);
  Store256(quads, _mm256_shuffle_epi8(weights.low, apart));
  Store256(quads + 2, _mm256_shuffle_epi8(weights.high, apart));
}

struct WideDot {
  I32x16 low, high;

  KVERN_INLINE static WideDot Begin() { return {Set1Int(0), Set1Int(0)}; }
  struct Quad {
    __m256i low, high;
  };
  KVERN_INLINE static Quad Spread(const WideQuad* quad) {
    int32_t bytes[2];
    std::memcpy(bytes, quad, sizeof bytes);
    return {_mm256_set1_epi32(bytes[0]), _mm256_set1_epi32(bytes[1])};
  }
  KVERN_INLINE void Add(U8x64 v, const Quad& quad) {
    low = {_mm256_dpbusd_avx_epi32(low.low, quad.low, v.low),
           _mm256_dpbusd_avx_epi32(low.high, quad.low, v.high)};
    high = {_mm256_dpbusd_avx_epi32(high.low, quad.high, v.low),
            _mm256_dpbusd_avx_epi32(high.high, quad.high, v.high)};
  }
  KVERN_INLINE I32x16 End() const { return AddInt(ShiftLeft<8>(high), low); }
};

}  // namespace
