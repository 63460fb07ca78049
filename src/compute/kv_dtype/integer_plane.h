// Where the bytes of a plane of integers lie: q8r and q4r (docs/numerics.md).
//
// A unit is 64 bytes of 8-bit numbers, what one load of a kernel reads: of K, four dimensions of 16
// tokens, [16 tokens][4]; of V, four tokens in 16 dimensions, [16 dimensions][4]. In 4 bits two
// units share their bytes, the even one low. A line holds as many units as share bytes. The 16
// scales in f16, one a token, follow K's lines and precede V's: one cache line together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kv_dtype.h"
#include "kvern/paged_view.h"

namespace kvern::compute {

template <int kBits>
struct IntegerPlane {
  static constexpr uint32_t kUnitsPerLine = 8 / kBits;
  static constexpr size_t kLineBytes = 64;

  // Lines of the whole K plane, and of V's four tokens.
  static constexpr uint32_t KeyLines(uint32_t head_dim) {
    return (head_dim + 4 * kUnitsPerLine - 1) / (4 * kUnitsPerLine);
  }
  static constexpr uint32_t ValueLines(uint32_t v_dim) {
    return (v_dim / 16 + kUnitsPerLine - 1) / kUnitsPerLine;
  }
  static constexpr size_t KeyScales(uint32_t head_dim) { return KeyLines(head_dim) * kLineBytes; }
  static constexpr size_t kValueLines = kBlockTokens * sizeof(uint16_t);  // where they begin

  static size_t KeyPlaneBytes(uint32_t head_dim) {
    return KeyScales(head_dim) + kBlockTokens * sizeof(uint16_t);
  }
  static size_t ValuePlaneBytes(uint32_t v_dim) {
    return 4 * ValueLines(v_dim) * kLineBytes + kValueLines;
  }

  static KvRow KeyRow(uint32_t head_dim, uint32_t slot) {
    return {.first = size_t{slot} * 4,
            .stride = kLineBytes,
            .bytes = 4,
            .count = KeyLines(head_dim),
            .scale = KeyScales(head_dim) + slot * sizeof(uint16_t),
            .scale_bytes = sizeof(uint16_t)};
  }
  static KvRow ValueRow(uint32_t v_dim, uint32_t slot) {
    return {.first = kValueLines + slot / 4 * ValueLines(v_dim) * kLineBytes + slot % 4,
            .stride = 4,
            .bytes = 1,
            .count = ValueLines(v_dim) * 16,
            .scale = slot * sizeof(uint16_t),
            .scale_bytes = sizeof(uint16_t)};
  }
};

}  // namespace kvern::compute
