// The 16-lane vector in one AVX-512 register. Contracts: ../scalar/vec.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifndef KVERN_ISA  // another instruction set has the same vector
#define KVERN_ISA avx512
#endif
#define KVERN_INLINE [[gnu::always_inline]] inline

namespace {

constexpr int kLanes = 16;
constexpr int kVectorRegisters = 32;

using F32x16 = __m512;
using I32x16 = __m512i;
struct U8x64 {
  __m512i bytes;
};

KVERN_INLINE __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

KVERN_INLINE F32x16 Set1(float x) { return _mm512_set1_ps(x); }
KVERN_INLINE I32x16 Set1Int(int32_t x) { return _mm512_set1_epi32(x); }
KVERN_INLINE F32x16 Load(const float* p) { return _mm512_loadu_ps(p); }
KVERN_INLINE void Store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }
KVERN_INLINE F32x16 LoadFirst(const float* p, int n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
KVERN_INLINE void StoreFirst(float* p, F32x16 v, int n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}
KVERN_INLINE __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
KVERN_INLINE F32x16 LoadF16(const uint16_t* p) { return _mm512_cvtph_ps(Load256(p)); }
KVERN_INLINE F32x16 LoadBf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
}
KVERN_INLINE void StoreF16(uint16_t* p, F32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Ties to even by integer arithmetic: the native conversion flushes subnormals. No NaN reaches it.
KVERN_INLINE void StoreBf16(uint16_t* p, F32x16 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
KVERN_INLINE void LoadPairs(const float* p, F32x16& even, F32x16& odd) {
  const __m512i index =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
  even = _mm512_permutex2var_ps(a, index, b);
  odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(index, _mm512_set1_epi32(1)), b);
}
KVERN_INLINE void StorePairs(float* p, F32x16 even, F32x16 odd) {
  const __m512i index = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, index, odd));
  _mm512_storeu_ps(
      p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(index, _mm512_set1_epi32(8)), odd));
}
KVERN_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
KVERN_INLINE I32x16 LoadI8(const int8_t* p) { return _mm512_cvtepi8_epi32(Load128(p)); }
KVERN_INLINE I32x16 LoadU8(const uint8_t* p) { return _mm512_cvtepu8_epi32(Load128(p)); }
KVERN_INLINE void StoreI8(int8_t* p, I32x16 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

KVERN_INLINE F32x16 Add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
KVERN_INLINE F32x16 Sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
KVERN_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
KVERN_INLINE F32x16 Div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
KVERN_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
KVERN_INLINE F32x16 Max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
KVERN_INLINE I32x16 RoundToInt(F32x16 a) { return _mm512_cvtps_epi32(a); }
KVERN_INLINE F32x16 ToFloat(I32x16 a) { return _mm512_cvtepi32_ps(a); }
KVERN_INLINE I32x16 Bits(F32x16 a) { return _mm512_castps_si512(a); }
KVERN_INLINE F32x16 FromBits(I32x16 a) { return _mm512_castsi512_ps(a); }
KVERN_INLINE I32x16 AddInt(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
KVERN_INLINE I32x16 MulInt(I32x16 a, I32x16 b) { return _mm512_mullo_epi32(a, b); }
KVERN_INLINE I32x16 AndInt(I32x16 a, I32x16 b) { return _mm512_and_si512(a, b); }
KVERN_INLINE I32x16 MaxInt(I32x16 a, I32x16 b) { return _mm512_max_epi32(a, b); }
template <int kShift>
KVERN_INLINE I32x16 ShiftLeft(I32x16 a) {
  return _mm512_slli_epi32(a, kShift);
}
template <int kShift>
KVERN_INLINE I32x16 ShiftRightSigned(I32x16 a) {
  return _mm512_srai_epi32(a, kShift);
}
KVERN_INLINE F32x16 SelectGreaterEqual(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GE_OQ), b, a);
}
KVERN_INLINE F32x16 SelectRange(int begin, int end, F32x16 a, F32x16 b) {
  const auto mask = static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin));
  return _mm512_mask_blend_ps(mask, b, a);
}

template <int kStride>
KVERN_INLINE F32x16 Butterfly(F32x16 a) {
  constexpr auto kUpper = static_cast<__mmask16>(kStride == 8   ? 0xFF00
                                                 : kStride == 4 ? 0xF0F0
                                                 : kStride == 2 ? 0xCCCC
                                                                : 0xAAAA);
  const auto partner_of = [](int i) { return i ^ kStride; };
  const __m512i index = _mm512_setr_epi32(
      partner_of(0), partner_of(1), partner_of(2), partner_of(3), partner_of(4), partner_of(5),
      partner_of(6), partner_of(7), partner_of(8), partner_of(9), partner_of(10), partner_of(11),
      partner_of(12), partner_of(13), partner_of(14), partner_of(15));
  const __m512 partner = _mm512_permutex2var_ps(a, index, a);
  return _mm512_mask_blend_ps(kUpper, _mm512_add_ps(a, partner), _mm512_sub_ps(partner, a));
}

KVERN_INLINE __m256 LowHalf(F32x16 a) { return _mm512_castps512_ps256(a); }
KVERN_INLINE __m256 HighHalf(F32x16 a) { return _mm512_extractf32x8_ps(a, 1); }
KVERN_INLINE float FirstLane(F32x16 a) { return _mm256_cvtss_f32(LowHalf(a)); }
KVERN_INLINE float Fold(F32x16 a) {
  const __m256 x8 = _mm256_add_ps(LowHalf(a), HighHalf(a));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
KVERN_INLINE float FoldMax(F32x16 a) {
  const __m256 x8 = _mm256_max_ps(LowHalf(a), HighHalf(a));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
KVERN_INLINE int32_t FoldMaxInt(I32x16 a) { return _mm512_reduce_max_epi32(a); }
KVERN_INLINE int32_t SumInt(I32x16 a) { return _mm512_reduce_add_epi32(a); }

KVERN_INLINE U8x64 LoadBytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
KVERN_INLINE U8x64 AndBytes(U8x64 a, uint8_t mask) {
  return {_mm512_and_si512(a.bytes, _mm512_set1_epi8(static_cast<char>(mask)))};
}
KVERN_INLINE U8x64 SubBytes(U8x64 a, uint8_t n) {
  return {_mm512_sub_epi8(a.bytes, _mm512_set1_epi8(static_cast<char>(n)))};
}
KVERN_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) { return {_mm512_or_si512(a.bytes, b.bytes)}; }
template <int kRight, uint8_t kMask, int kLeft>
KVERN_INLINE U8x64 ExtractBits(U8x64 a) {
  const __m512i shifted = kRight >= kLeft ? _mm512_srli_epi16(a.bytes, kRight - kLeft)
                                          : _mm512_slli_epi16(a.bytes, kLeft - kRight);
  return AndBytes({shifted}, static_cast<uint8_t>(kMask << kLeft));
}
// Into L2: into L1 was measured slower. Assembly because gcc 12 drops inline prefetch functions.
KVERN_INLINE void Prefetch(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

KVERN_INLINE float FmaScalar(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
KVERN_INLINE float SqrtScalar(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

}  // namespace
