// Exact sums of products of bytes, as plain loops: this file defines what every other dot.h
// computes.
#pragma once

#include "compute/isa/scalar/vec.h"

namespace {

// For each row r: start + Σ (w − kOffset) · q over the groups added, w being 0 … kMaxWeight and q
// −127 … 127. `sum_q` is the Σ q of those groups.
template <int kMaxWeight, int kOffset>
struct Dot {
  // Groups that may be added between Begin and End.
  static constexpr int kCapacity = 8;
  // Tokens whose sums a kernel should keep in registers.
  static constexpr int kTokens = 1;

  I32x16 sum;

  static Dot Begin(I32x16 start, int32_t sum_q) {
    return {AddInt(start, Set1Int(-kOffset * sum_q))};
  }
  // Four q for every row.
  using Quad = const int8_t*;
  static Quad Spread(const int8_t* quad) { return quad; }

  // Row r meets bytes 4r … 4r + 3 of w; quad holds the four q.
  void Add(U8x64 w, const int8_t* quad) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < 4; ++j) sum.lane[i] += w.byte[4 * i + j] * quad[j];
    }
  }
  I32x16 End() const { return sum; }
};

// Four weights of 0 … 32767, as WideDot reads them.
struct WideQuad {
  int16_t weight[4];
};
// 16 weights as four quads.
KVERN_INLINE void StoreWide(WideQuad* quads, I32x16 weights) {
  for (int i = 0; i < kLanes; ++i) {
    quads[i / 4].weight[i % 4] = static_cast<int16_t>(weights.lane[i]);
  }
}

// For each row r: Σ v · weight over up to 32 quads added, v being -127 … 127.
struct WideDot {
  I32x16 sum;

  static WideDot Begin() { return {Set1Int(0)}; }
  using Quad = const WideQuad*;
  static Quad Spread(const WideQuad* quad) { return quad; }
  // Row r meets bytes 4r … 4r + 3 of v, which are signed.
  void Add(U8x64 v, Quad quad) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < 4; ++j) {
        sum.lane[i] += static_cast<int8_t>(v.byte[4 * i + j]) * quad->weight[j];
      }
    }
  }
  I32x16 End() const { return sum; }
};

}  // namespace
