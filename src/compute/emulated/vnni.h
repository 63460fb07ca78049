// VNNI in AVX2, for tests on CPUs without it: sums of four products of bytes, exactly.
//
// Included before the vector of an instruction set whose intrinsics it replaces.
#pragma once

#include <immintrin.h>

namespace kvern::compute::emulated {

// sum[i] + Σ u8[4i + j] · s8[4i + j], by 16-bit products, whose pairs madd adds in 32 bits.
inline __m256i DotBytes(__m256i sum, __m256i u8, __m256i s8) {
  const __m256i even_u = _mm256_and_si256(u8, _mm256_set1_epi16(0xFF));
  const __m256i odd_u = _mm256_srli_epi16(u8, 8);
  const __m256i even_s = _mm256_srai_epi16(_mm256_slli_epi16(s8, 8), 8);
  const __m256i odd_s = _mm256_srai_epi16(s8, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even_u, even_s));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd_u, odd_s));
}

}  // namespace kvern::compute::emulated

#define _mm256_dpbusd_avx_epi32(sum, u8, s8) kvern::compute::emulated::DotBytes(sum, u8, s8)
