// AVX-512 in AVX2, for tests on CPUs without it: the intrinsics that isa/avx512 uses, and no
// others, over two 256-bit halves. An intrinsic that is missing here fails to compile.
//
// Included before isa/avx512/vec.h, whose intrinsics it replaces.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/emulated/vnni.h"

namespace kvern::compute::emulated {

struct Float512 {
  __m256 low, high;
};
struct Int512 {
  __m256i low, high;
};

inline Float512 Join(__m256 low, __m256 high) { return {low, high}; }
inline Int512 Join(__m256i low, __m256i high) { return {low, high}; }
inline __m256i Join(__m128i low, __m128i high) { return _mm256_set_m128i(high, low); }

inline __m128i Low(__m256i v) { return _mm256_castsi256_si128(v); }
inline __m128i High(__m256i v) { return _mm256_extracti128_si256(v, 1); }
inline __m128i Low(__m128i v) { return v; }
inline __m128i High(__m128i v) { return _mm_srli_si128(v, 8); }
inline __m256 Low(Float512 v) { return v.low; }
inline __m256 High(Float512 v) { return v.high; }
inline __m256i Low(Int512 v) { return v.low; }
inline __m256i High(Int512 v) { return v.high; }

template <typename Half, typename... Vectors>
[[gnu::always_inline]] inline auto EachHalf(Half half, Vectors... v) {
  return Join(half(Low(v)...), half(High(v)...));
}

// Lane by lane, for what has no 256-bit twin.
struct Lanes {
  int32_t i[16];
};
template <typename To, typename From>
To BitCopy(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <typename Vector>
Vector Load512(const void* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename Vector>
void Store512(void* p, Vector v) {
  std::memcpy(p, &v, sizeof v);
}

// Touches the lanes of the mask alone.
inline Float512 LoadMasked(__mmask16 mask, const float* p) {
  Lanes lanes = {};
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) std::memcpy(&lanes.i[i], p + i, sizeof *p);
  }
  return BitCopy<Float512>(lanes);
}
inline void StoreMasked(float* p, __mmask16 mask, Float512 v) {
  const auto lanes = BitCopy<Lanes>(v);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) std::memcpy(p + i, &lanes.i[i], sizeof *p);
  }
}
inline Float512 Blend(__mmask16 mask, Float512 zero, Float512 one) {
  auto result = BitCopy<Lanes>(zero);
  const auto ones = BitCopy<Lanes>(one);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) result.i[i] = ones.i[i];
  }
  return BitCopy<Float512>(result);
}
inline __mmask16 JoinMasks(int low, int high) { return static_cast<__mmask16>(low | high << 8); }
inline Float512 Permute(Float512 a, Int512 index, Float512 b) {
  const auto from_a = BitCopy<Lanes>(a), from_b = BitCopy<Lanes>(b), from = BitCopy<Lanes>(index);
  Lanes result;
  for (int i = 0; i < 16; ++i) {
    const int lane = from.i[i] & 15;
    result.i[i] = from.i[i] & 16 ? from_b.i[lane] : from_a.i[lane];
  }
  return BitCopy<Float512>(result);
}
// The low bits of each lane.
template <typename Vector, typename Element>
Vector Truncate(Int512 v) {
  const auto lanes = BitCopy<Lanes>(v);
  struct {
    Element i[16];
  } narrow;
  for (int i = 0; i < 16; ++i) narrow.i[i] = static_cast<Element>(lanes.i[i]);
  return BitCopy<Vector>(narrow);
}
inline int32_t Sum(Int512 v) {
  int32_t sum = 0;
  for (const int32_t lane : BitCopy<Lanes>(v).i) sum += lane;
  return sum;
}
inline int32_t Largest(Int512 v) {
  int32_t largest = INT32_MIN;
  for (const int32_t lane : BitCopy<Lanes>(v).i) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace kvern::compute::emulated

// Tells isa/avx512 that no register can be named in assembly.
#define KVERN_EMULATED
#define KVERN_BY(name) kvern::compute::emulated::name
// The 256-bit intrinsic on each half of the vectors; the second form has one vector, an immediate.
#define KVERN_HALVES(intrinsic, ...) \
  KVERN_BY(EachHalf)                 \
  (                                  \
      [](auto... half) __attribute__((always_inline)) { return intrinsic(half...); }, __VA_ARGS__)
#define KVERN_HALVES_BY(immediate, intrinsic, v) \
  KVERN_BY(EachHalf)                             \
  (                                              \
      [](auto half) __attribute__((always_inline)) { return intrinsic(half, immediate); }, v)
#define KVERN_TWICE(half) KVERN_BY(Join)(half, half)

// Those with an immediate are macros of some compilers and optimisation levels.
#undef _mm512_setr_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_cmp_ps_mask
#undef _mm512_cvtps_ph
#undef _mm512_slli_epi16
#undef _mm512_srli_epi16
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srai_epi32

#define __m512 KVERN_BY(Float512)
#define __m512i KVERN_BY(Int512)

#define _mm512_loadu_ps(p) KVERN_BY(Load512)<__m512>(p)
#define _mm512_loadu_si512(p) KVERN_BY(Load512)<__m512i>(p)
#define _mm512_storeu_ps(p, v) KVERN_BY(Store512)(p, v)
#define _mm512_storeu_si512(p, v) KVERN_BY(Store512)(p, v)
#define _mm512_shuffle_epi8(v, from) KVERN_HALVES(_mm256_shuffle_epi8, v, from)
#define _mm512_sub_epi8(a, b) KVERN_HALVES(_mm256_sub_epi8, a, b)
#define _mm512_maskz_loadu_ps(mask, p) KVERN_BY(LoadMasked)(mask, p)
#define _mm512_mask_storeu_ps(p, mask, v) KVERN_BY(StoreMasked)(p, mask, v)
#define _mm512_set1_ps(x) KVERN_TWICE(_mm256_set1_ps(x))
#define _mm512_set1_epi8(x) KVERN_TWICE(_mm256_set1_epi8(x))
#define _mm512_set1_epi32(x) KVERN_TWICE(_mm256_set1_epi32(x))
#define _mm512_setr_epi32(...) KVERN_BY(BitCopy)<__m512i>(KVERN_BY(Lanes){{__VA_ARGS__}})

#define _mm512_castps_si512(v) KVERN_HALVES(_mm256_castps_si256, v)
#define _mm512_castsi512_ps(v) KVERN_HALVES(_mm256_castsi256_ps, v)
#define _mm512_castps512_ps256(v) KVERN_BY(Low)(v)
#define _mm512_extractf32x8_ps(v, half) (half == 0 ? KVERN_BY(Low)(v) : KVERN_BY(High)(v))
#define _mm512_permutex2var_ps(a, index, b) KVERN_BY(Permute)(a, index, b)
#define _mm512_cmp_ps_mask(a, b, how)                                          \
  KVERN_BY(JoinMasks)                                                          \
  (_mm256_movemask_ps(_mm256_cmp_ps(KVERN_BY(Low)(a), KVERN_BY(Low)(b), how)), \
   _mm256_movemask_ps(_mm256_cmp_ps(KVERN_BY(High)(a), KVERN_BY(High)(b), how)))
#define _mm512_mask_blend_ps(mask, a, b) KVERN_BY(Blend)(mask, a, b)

#define _mm512_cvtph_ps(v) KVERN_HALVES(_mm256_cvtph_ps, v)
#define _mm512_cvtps_ph(v, how) KVERN_HALVES_BY(how, _mm256_cvtps_ph, v)
#define _mm512_cvtps_epi32(v) KVERN_HALVES(_mm256_cvtps_epi32, v)
#define _mm512_cvtepi32_ps(v) KVERN_HALVES(_mm256_cvtepi32_ps, v)
#define _mm512_cvtepi8_epi32(v) KVERN_HALVES(_mm256_cvtepi8_epi32, v)
#define _mm512_cvtepu8_epi32(v) KVERN_HALVES(_mm256_cvtepu8_epi32, v)
#define _mm512_cvtepu16_epi32(v) KVERN_HALVES(_mm256_cvtepu16_epi32, v)
#define _mm512_cvtepi32_epi8(v) KVERN_BY(Truncate)<__m128i, int8_t>(v)
#define _mm512_cvtepi32_epi16(v) KVERN_BY(Truncate)<__m256i, int16_t>(v)

#define _mm512_add_ps(a, b) KVERN_HALVES(_mm256_add_ps, a, b)
#define _mm512_sub_ps(a, b) KVERN_HALVES(_mm256_sub_ps, a, b)
#define _mm512_mul_ps(a, b) KVERN_HALVES(_mm256_mul_ps, a, b)
#define _mm512_div_ps(a, b) KVERN_HALVES(_mm256_div_ps, a, b)
#define _mm512_max_ps(a, b) KVERN_HALVES(_mm256_max_ps, a, b)
#define _mm512_fmadd_ps(a, b, c) KVERN_HALVES(_mm256_fmadd_ps, a, b, c)

#define _mm512_add_epi32(a, b) KVERN_HALVES(_mm256_add_epi32, a, b)
#define _mm512_mullo_epi32(a, b) KVERN_HALVES(_mm256_mullo_epi32, a, b)
#define _mm512_max_epi32(a, b) KVERN_HALVES(_mm256_max_epi32, a, b)
#define _mm512_and_si512(a, b) KVERN_HALVES(_mm256_and_si256, a, b)
#define _mm512_or_si512(a, b) KVERN_HALVES(_mm256_or_si256, a, b)
#define _mm512_slli_epi16(v, count) KVERN_HALVES_BY(count, _mm256_slli_epi16, v)
#define _mm512_srli_epi16(v, count) KVERN_HALVES_BY(count, _mm256_srli_epi16, v)
#define _mm512_slli_epi32(v, count) KVERN_HALVES_BY(count, _mm256_slli_epi32, v)
#define _mm512_srli_epi32(v, count) KVERN_HALVES_BY(count, _mm256_srli_epi32, v)
#define _mm512_srai_epi32(v, count) KVERN_HALVES_BY(count, _mm256_srai_epi32, v)
#define _mm512_reduce_add_epi32(v) KVERN_BY(Sum)(v)
#define _mm512_reduce_max_epi32(v) KVERN_BY(Largest)(v)
#define _mm512_dpbusd_epi32(sum, u8, s8) KVERN_HALVES(KVERN_BY(DotBytes), sum, u8, s8)
