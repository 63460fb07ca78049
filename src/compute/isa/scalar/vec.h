// The 16-lane vector of the kernels, as plain loops: this file defines what every other vec.h
// computes.
//
// A kernel source (../*-inl.h) is compiled once per folder, inside an anonymous namespace, so no
// symbol of one instruction set can replace another's. All functions are per lane unless they say
// otherwise; none depends on the order of lanes except Fold.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float16.h"

#define KVERN_ISA scalar
#define KVERN_INLINE inline  // forcing it makes this file slow to compile, not faster

namespace {

constexpr int kLanes = 16;
// How many of these vectors the registers hold.
constexpr int kVectorRegisters = 2;

struct F32x16 {
  float lane[kLanes];
};
struct I32x16 {
  int32_t lane[kLanes];
};
// 16 rows of 4 unsigned bytes: row r holds bytes 4r … 4r + 3.
struct U8x64 {
  uint8_t byte[4 * kLanes];
};

template <typename F>
KVERN_INLINE F32x16 Map(F f) {
  F32x16 result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = f(i);
  return result;
}
template <typename F>
KVERN_INLINE I32x16 MapInt(F f) {
  I32x16 result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = f(i);
  return result;
}

KVERN_INLINE F32x16 Set1(float x) {
  return Map([=](int) { return x; });
}
KVERN_INLINE I32x16 Set1Int(int32_t x) {
  return MapInt([=](int) { return x; });
}
KVERN_INLINE F32x16 Load(const float* p) {
  F32x16 result;
  std::memcpy(result.lane, p, sizeof result.lane);
  return result;
}
KVERN_INLINE void Store(float* p, F32x16 v) { std::memcpy(p, v.lane, sizeof v.lane); }
// The first n lanes from p, zeros behind. 0 ≤ n ≤ 16.
KVERN_INLINE F32x16 LoadFirst(const float* p, int n) {
  return Map([=](int i) { return i < n ? p[i] : 0.0f; });
}
KVERN_INLINE void StoreFirst(float* p, F32x16 v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v.lane[i];
}
// 16 half or bfloat16 numbers, widened exactly.
KVERN_INLINE F32x16 LoadF16(const uint16_t* p) {
  return Map([=](int i) { return kvern::HalfToFloat(p[i]); });
}
KVERN_INLINE F32x16 LoadBf16(const uint16_t* p) {
  return Map([=](int i) { return kvern::Bfloat16ToFloat(p[i]); });
}
// Rounded to nearest even.
KVERN_INLINE void StoreF16(uint16_t* p, F32x16 v) {
  for (int i = 0; i < kLanes; ++i) p[i] = kvern::FloatToHalf(v.lane[i]);
}
KVERN_INLINE void StoreBf16(uint16_t* p, F32x16 v) {
  for (int i = 0; i < kLanes; ++i) p[i] = kvern::FloatToBfloat16(v.lane[i]);
}
// 32 numbers as 16 pairs: lane i of `even` is p[2i], of `odd` p[2i + 1].
KVERN_INLINE void LoadPairs(const float* p, F32x16& even, F32x16& odd) {
  even = Map([=](int i) { return p[2 * i]; });
  odd = Map([=](int i) { return p[2 * i + 1]; });
}
KVERN_INLINE void StorePairs(float* p, F32x16 even, F32x16 odd) {
  for (int i = 0; i < kLanes; ++i) {
    p[2 * i] = even.lane[i];
    p[2 * i + 1] = odd.lane[i];
  }
}
// 16 bytes, widened with and without sign.
KVERN_INLINE I32x16 LoadI8(const int8_t* p) {
  return MapInt([=](int i) { return p[i]; });
}
KVERN_INLINE I32x16 LoadU8(const uint8_t* p) {
  return MapInt([=](int i) { return p[i]; });
}
// Lanes must lie in [-128, 127].
KVERN_INLINE void StoreI8(int8_t* p, I32x16 v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(v.lane[i]);
}

KVERN_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return Map([&](int i) { return a.lane[i] + b.lane[i]; });
}
KVERN_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return Map([&](int i) { return a.lane[i] - b.lane[i]; });
}
KVERN_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return Map([&](int i) { return a.lane[i] * b.lane[i]; });
}
KVERN_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return Map([&](int i) { return a.lane[i] / b.lane[i]; });
}
// a·b + c, rounded once.
KVERN_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return Map([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
// b where a and b are equal or either is NaN.
KVERN_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return Map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// To the nearest integer, ties to even. |x| < 2³¹.
KVERN_INLINE I32x16 RoundToInt(F32x16 a) {
  return MapInt([&](int i) { return static_cast<int32_t>(std::nearbyintf(a.lane[i])); });
}
KVERN_INLINE F32x16 ToFloat(I32x16 a) {
  return Map([&](int i) { return static_cast<float>(a.lane[i]); });
}
KVERN_INLINE I32x16 Bits(F32x16 a) {
  I32x16 result;
  std::memcpy(result.lane, a.lane, sizeof result.lane);
  return result;
}
KVERN_INLINE F32x16 FromBits(I32x16 a) {
  F32x16 result;
  std::memcpy(result.lane, a.lane, sizeof result.lane);
  return result;
}
KVERN_INLINE I32x16 AddInt(I32x16 a, I32x16 b) {
  return MapInt([&](int i) {
    return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) +
                                static_cast<uint32_t>(b.lane[i]));
  });
}
// Products must fit in 32 bits.
KVERN_INLINE I32x16 MulInt(I32x16 a, I32x16 b) {
  return MapInt([&](int i) { return a.lane[i] * b.lane[i]; });
}
KVERN_INLINE I32x16 AndInt(I32x16 a, I32x16 b) {
  return MapInt([&](int i) { return a.lane[i] & b.lane[i]; });
}
KVERN_INLINE I32x16 MaxInt(I32x16 a, I32x16 b) {
  return MapInt([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
template <int kShift>
KVERN_INLINE I32x16 ShiftLeft(I32x16 a) {
  return MapInt(
      [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) << kShift); });
}
// The sign bit fills in from the left.
template <int kShift>
KVERN_INLINE I32x16 ShiftRightSigned(I32x16 a) {
  return MapInt([&](int i) { return a.lane[i] >> kShift; });
}
// a where x ≥ y, else b; b where either is NaN.
KVERN_INLINE F32x16 SelectGreaterEqual(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return Map([&](int i) { return x.lane[i] >= y.lane[i] ? a.lane[i] : b.lane[i]; });
}
// Lanes in [begin, end) of a, the others of b. 0 ≤ begin, end ≤ 16.
KVERN_INLINE F32x16 SelectRange(int begin, int end, F32x16 a, F32x16 b) {
  return Map([&](int i) { return i >= begin && i < end ? a.lane[i] : b.lane[i]; });
}

// Lanes i and i + kStride, for each i whose bit kStride is 0, become their sum and their
// difference.
template <int kStride>
KVERN_INLINE F32x16 Butterfly(F32x16 a) {
  return Map([&](int i) {
    return (i & kStride) == 0 ? a.lane[i] + a.lane[i + kStride] : a.lane[i - kStride] - a.lane[i];
  });
}

KVERN_INLINE float FirstLane(F32x16 a) { return a.lane[0]; }
// Sum of lanes in the one order of rule N9: i + (i + 8), then + 4, + 2, + 1.
KVERN_INLINE float Fold(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.lane[i] = a.lane[i] + a.lane[i + width];
  }
  return a.lane[0];
}
// The same tree with Max.
KVERN_INLINE float FoldMax(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
    }
  }
  return a.lane[0];
}
KVERN_INLINE int32_t FoldMaxInt(I32x16 a) {
  int32_t result = a.lane[0];
  for (int i = 1; i < kLanes; ++i) result = a.lane[i] > result ? a.lane[i] : result;
  return result;
}
// Exact: the sum must fit in 32 bits.
KVERN_INLINE int32_t SumInt(I32x16 a) {
  int32_t result = 0;
  for (int i = 0; i < kLanes; ++i) result += a.lane[i];
  return result;
}

KVERN_INLINE U8x64 LoadBytes(const uint8_t* p) {
  U8x64 result;
  std::memcpy(result.byte, p, sizeof result.byte);
  return result;
}
// Byte masks and shifts; a shift moves bits within each byte's 16-bit word, so mask afterwards.
KVERN_INLINE U8x64 AndBytes(U8x64 a, uint8_t mask) {
  for (int i = 0; i < 64; ++i) a.byte[i] = a.byte[i] & mask;
  return a;
}
// a − n in each byte, modulo 256.
KVERN_INLINE U8x64 SubBytes(U8x64 a, uint8_t n) {
  for (int i = 0; i < 64; ++i) a.byte[i] = static_cast<uint8_t>(a.byte[i] - n);
  return a;
}
KVERN_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) {
  for (int i = 0; i < 64; ++i) a.byte[i] = a.byte[i] | b.byte[i];
  return a;
}
// (byte >> right) & mask, then << left, in each byte.
template <int kRight, uint8_t kMask, int kLeft>
KVERN_INLINE U8x64 ExtractBits(U8x64 a) {
  for (int i = 0; i < 64; ++i) {
    a.byte[i] = static_cast<uint8_t>(((a.byte[i] >> kRight) & kMask) << kLeft);
  }
  return a;
}
// Hints that the line at p will be read soon.
KVERN_INLINE void Prefetch(const void*) {}

// Scalar twins of what kernels also need once per row.
KVERN_INLINE float FmaScalar(float a, float b, float c) { return std::fma(a, b, c); }
KVERN_INLINE float SqrtScalar(float a) { return std::sqrt(a); }

}  // namespace
