// Conversions between float and the two 16-bit formats: half (IEEE binary16) and bfloat16.
//
// Widening is exact; narrowing rounds to nearest, ties to even, subnormals included. Values too
// large become infinity; a NaN stays a (quiet) NaN of the same sign. Integer arithmetic only, so
// the result depends on neither the CPU nor its floating-point mode. The 16-bit values are raw
// bits.
#pragma once

#include <bit>
#include <cstdint>

namespace kvern {

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    const uint32_t quiet = mantissa == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | mantissa << 13);
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | mantissa << 13);
  }
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa · 2⁻²⁴, normalised so that its highest bit becomes the implicit one.
  const auto shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;
  return std::bit_cast<float>(sign | (113 - shift) << 23 | (mantissa << shift & 0x3FFu) << 13);
}

inline uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // ≥ 65520
  if (magnitude >= 0x38800000u) {  // ≥ 2⁻¹⁴: a normal half; a carry may rightly raise the exponent
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // ≤ 2⁻²⁵, the tie to zero
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t shift = 126 - (magnitude >> 23);  // 14 … 24: what aligns the mantissa to 2⁻²⁴
  const uint32_t kept = mantissa >> shift;
  const uint32_t dropped = mantissa & ((1u << shift) - 1);
  const uint32_t half_way = 1u << (shift - 1);
  const bool up = dropped > half_way || (dropped == half_way && (kept & 1u) != 0);
  return static_cast<uint16_t>(sign | (kept + (up ? 1u : 0u)));
}

inline float Bfloat16ToFloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

inline uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace kvern
