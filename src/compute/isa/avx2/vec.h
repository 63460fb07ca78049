// The 16-lane vector in two AVX2 registers (with FMA and F16C). Contracts: ../scalar/vec.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#ifndef KVERN_ISA  // another instruction set has the same vector
#define KVERN_ISA avx2
#endif
#define KVERN_INLINE [[gnu::always_inline]] inline

namespace {

constexpr int kLanes = 16;
constexpr int kVectorRegisters = 8;

struct F32x16 {
  __m256 low, high;
};
struct I32x16 {
  __m256i low, high;
};
struct U8x64 {
  __m256i low, high;
};

KVERN_INLINE __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
KVERN_INLINE void Store256(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
KVERN_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
KVERN_INLINE __m128i Load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}
KVERN_INLINE void Store128(void* p, __m128i v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }

KVERN_INLINE F32x16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
KVERN_INLINE I32x16 Set1Int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
KVERN_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
KVERN_INLINE void Store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
KVERN_INLINE F32x16 LoadFirst(const float* p, int n) {
  alignas(32) float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
KVERN_INLINE void StoreFirst(float* p, F32x16 v, int n) {
  alignas(32) float lanes[kLanes];
  Store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
KVERN_INLINE F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
KVERN_INLINE F32x16 LoadBf16(const uint16_t* p) {
  const __m256i low = _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16);
  const __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p + 8)), 16);
  return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}
KVERN_INLINE void StoreF16(uint16_t* p, F32x16 v) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  Store128(p, _mm256_cvtps_ph(v.low, kRounding));
  Store128(p + 8, _mm256_cvtps_ph(v.high, kRounding));
}
KVERN_INLINE __m256i RoundToBf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  return _mm256_srli_epi32(rounded, 16);
}
KVERN_INLINE void StoreBf16(uint16_t* p, F32x16 v) {
  const __m256i mixed = _mm256_packus_epi32(RoundToBf16(v.low), RoundToBf16(v.high));
  Store256(p, _mm256_permute4x64_epi64(mixed, 0xD8));
}
KVERN_INLINE void SplitPairs(const float* p, __m256& even, __m256& odd) {
  const __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  even = _mm256_shuffle_ps(low, high, 0x88);
  odd = _mm256_shuffle_ps(low, high, 0xDD);
}
KVERN_INLINE void JoinPairs(float* p, __m256 even, __m256 odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}
KVERN_INLINE void LoadPairs(const float* p, F32x16& even, F32x16& odd) {
  SplitPairs(p, even.low, odd.low);
  SplitPairs(p + 16, even.high, odd.high);
}
KVERN_INLINE void StorePairs(float* p, F32x16 even, F32x16 odd) {
  JoinPairs(p, even.low, odd.low);
  JoinPairs(p + 16, even.high, odd.high);
}
KVERN_INLINE I32x16 LoadI8(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(Load64(p)), _mm256_cvtepi8_epi32(Load64(p + 8))};
}
KVERN_INLINE I32x16 LoadU8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(Load64(p)), _mm256_cvtepu8_epi32(Load64(p + 8))};
}
KVERN_INLINE void StoreI8(int8_t* p, I32x16 v) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.low, v.high), 0xD8);
  Store128(p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

KVERN_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
KVERN_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
KVERN_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
KVERN_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
KVERN_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
KVERN_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
KVERN_INLINE I32x16 RoundToInt(F32x16 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
KVERN_INLINE F32x16 ToFloat(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
KVERN_INLINE I32x16 Bits(F32x16 a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
KVERN_INLINE F32x16 FromBits(I32x16 a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
KVERN_INLINE I32x16 AddInt(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
KVERN_INLINE I32x16 MulInt(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
KVERN_INLINE I32x16 AndInt(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
KVERN_INLINE I32x16 MaxInt(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
template <int kShift>
KVERN_INLINE I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.low, kShift), _mm256_slli_epi32(a.high, kShift)};
}
template <int kShift>
KVERN_INLINE I32x16 ShiftRightSigned(I32x16 a) {
  return {_mm256_srai_epi32(a.low, kShift), _mm256_srai_epi32(a.high, kShift)};
}
KVERN_INLINE F32x16 SelectGreaterEqual(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.low, a.low, _mm256_cmp_ps(x.low, y.low, _CMP_GE_OQ)),
          _mm256_blendv_ps(b.high, a.high, _mm256_cmp_ps(x.high, y.high, _CMP_GE_OQ))};
}
KVERN_INLINE F32x16 SelectRange(int begin, int end, F32x16 a, F32x16 b) {
  const __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i second = _mm256_add_epi32(first, _mm256_set1_epi32(8));
  const __m256i from = _mm256_set1_epi32(begin - 1), to = _mm256_set1_epi32(end);
  const auto blend = [&](__m256i index, __m256 x, __m256 y) {
    const __m256i inside =
        _mm256_and_si256(_mm256_cmpgt_epi32(index, from), _mm256_cmpgt_epi32(to, index));
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(inside));
  };
  return {blend(first, a.low, b.low), blend(second, a.high, b.high)};
}

template <int kStride>
KVERN_INLINE __m256 ButterflyHalf(__m256 a) {
  constexpr int kUpper = kStride == 4 ? 0xF0 : kStride == 2 ? 0xCC : 0xAA;
  const __m256 partner = kStride == 4 ? _mm256_permute2f128_ps(a, a, 1)
                                      : _mm256_permute_ps(a, kStride == 2 ? 0x4E : 0xB1);
  return _mm256_blend_ps(_mm256_add_ps(a, partner), _mm256_sub_ps(partner, a), kUpper);
}
template <int kStride>
KVERN_INLINE F32x16 Butterfly(F32x16 a) {
  if constexpr (kStride == 8) return {_mm256_add_ps(a.low, a.high), _mm256_sub_ps(a.low, a.high)};
  return {ButterflyHalf<kStride>(a.low), ButterflyHalf<kStride>(a.high)};
}

KVERN_INLINE float FirstLane(F32x16 a) { return _mm256_cvtss_f32(a.low); }
KVERN_INLINE float Fold(F32x16 a) {
  const __m256 x8 = _mm256_add_ps(a.low, a.high);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
KVERN_INLINE float FoldMax(F32x16 a) {
  const __m256 x8 = _mm256_max_ps(a.low, a.high);
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
KVERN_INLINE int32_t FoldMaxInt(I32x16 a) {
  const __m256i x8 = _mm256_max_epi32(a.low, a.high);
  __m128i x = _mm_max_epi32(_mm256_castsi256_si128(x8), _mm256_extracti128_si256(x8, 1));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xB1)));
}
KVERN_INLINE int32_t SumInt(I32x16 a) {
  const __m256i x8 = _mm256_add_epi32(a.low, a.high);
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(x8), _mm256_extracti128_si256(x8, 1));
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xB1)));
}

KVERN_INLINE U8x64 LoadBytes(const uint8_t* p) { return {Load256(p), Load256(p + 32)}; }
KVERN_INLINE U8x64 AndBytes(U8x64 a, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(a.low, m), _mm256_and_si256(a.high, m)};
}
KVERN_INLINE U8x64 SubBytes(U8x64 a, uint8_t n) {
  const __m256i b = _mm256_set1_epi8(static_cast<char>(n));
  return {_mm256_sub_epi8(a.low, b), _mm256_sub_epi8(a.high, b)};
}
KVERN_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int kRight, uint8_t kMask, int kLeft>
KVERN_INLINE U8x64 ExtractBits(U8x64 a) {
  const auto shift = [](__m256i v) {
    if constexpr (kRight >= kLeft) return _mm256_srli_epi16(v, kRight - kLeft);
    return _mm256_slli_epi16(v, kLeft - kRight);
  };
  return AndBytes({shift(a.low), shift(a.high)}, static_cast<uint8_t>(kMask << kLeft));
}
KVERN_INLINE void Prefetch(const void* p) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(p)));
}

KVERN_INLINE float FmaScalar(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
KVERN_INLINE float SqrtScalar(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

}  // namespace
