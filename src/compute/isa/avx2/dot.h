// Sums of products of bytes by maddubs, which saturates at 16 bits: sums of pairs stay in 16 bits
// for as many groups as cannot overflow. Contracts: ../scalar/dot.h.
#pragma once

#include "compute/isa/avx2/vec.h"

namespace {

KVERN_INLINE __m256i BroadcastQuad(const int8_t* quad) {
  int32_t value;
  std::memcpy(&value, quad, sizeof value);
  return _mm256_set1_epi32(value);
}
KVERN_INLINE __m256i AddPairs(__m256i sum, __m256i pairs) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <int kMaxWeight, int kOffset>
struct Dot {
  static constexpr int kCapacity = 32767 / (2 * 127 * kMaxWeight);
  static constexpr int kTokens = 4;

  I32x16 start;
  __m256i low, high;

  KVERN_INLINE static Dot Begin(I32x16 start, int32_t sum_q) {
    return {AddInt(start, Set1Int(-kOffset * sum_q)), _mm256_setzero_si256(),
            _mm256_setzero_si256()};
  }
  using Quad = __m256i;
  KVERN_INLINE static Quad Spread(const int8_t* quad) { return BroadcastQuad(quad); }
  KVERN_INLINE void Add(U8x64 w, const int8_t* quad) { Add(w, Spread(quad)); }
  KVERN_INLINE void Add(U8x64 w, Quad q) {
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(w.low, q));
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(w.high, q));
  }
  KVERN_INLINE I32x16 End() const { return {AddPairs(start.low, low), AddPairs(start.high, high)}; }
};

// Whole bytes: |w − 128| · ±q, whose pairs just fit, so the offset is gone before the sum.
template <>
struct Dot<255, 128> {
  static constexpr int kCapacity = 8;
  static constexpr int kTokens = 4;

  I32x16 sum;

  KVERN_INLINE static Dot Begin(I32x16 start, int32_t) { return {start}; }
  using Quad = __m256i;
  KVERN_INLINE static Quad Spread(const int8_t* quad) { return BroadcastQuad(quad); }
  KVERN_INLINE void Add(U8x64 w, const int8_t* quad) { Add(w, Spread(quad)); }
  KVERN_INLINE void Add(U8x64 w, Quad q) {
    const auto dot = [&](__m256i acc, __m256i bytes) {
      const __m256i weight = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
      return AddPairs(acc,
                      _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(q, weight)));
    };
    sum = {dot(sum.low, w.low), dot(sum.high, w.high)};
  }
  KVERN_INLINE I32x16 End() const { return sum; }
};

struct WideQuad {
  int16_t weight[4];
};
KVERN_INLINE void StoreWide(WideQuad* quads, I32x16 weights) {
  Store256(quads, _mm256_permute4x64_epi64(_mm256_packs_epi32(weights.low, weights.high), 0xD8));
}

// Products of 16 bits: a row has the sum of its tokens 0 and 1 beside that of 2 and 3 until the
// end.
struct WideDot {
  __m256i sums[4];

  KVERN_INLINE static WideDot Begin() {
    const __m256i zero = _mm256_setzero_si256();
    return {{zero, zero, zero, zero}};
  }
  using Quad = __m256i;
  KVERN_INLINE static Quad Spread(const WideQuad* quad) {
    int64_t value;
    std::memcpy(&value, quad, sizeof value);
    return _mm256_set1_epi64x(value);
  }
  KVERN_INLINE void Add(U8x64 v, Quad quad) {
    const auto half = [&](__m256i bytes, __m256i* sum) {
      const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes));
      const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1));
      sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(low, quad));
      sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(high, quad));
    };
    half(v.low, sums);
    half(v.high, sums + 2);
  }
  KVERN_INLINE I32x16 End() const {
    const auto join = [](__m256i a, __m256i b) {
      return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xD8);
    };
    return {join(sums[0], sums[1]), join(sums[2], sums[3])};
  }
};

}  // namespace
