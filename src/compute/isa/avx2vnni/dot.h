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
  KVERN_INLINE void Add(U8x64 w, const int8_t* quad) {
    int32_t value;
    std::memcpy(&value, quad, sizeof value);
    const __m256i q = _mm256_set1_epi32(value);
    sum = {_mm256_dpbusd_avx_epi32(sum.low, w.low, q),
           _mm256_dpbusd_avx_epi32(sum.high, w.high, q)};
  }
  KVERN_INLINE I32x16 End() const { return sum; }
};

}  // namespace
