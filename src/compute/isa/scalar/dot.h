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
  // Row r meets bytes 4r … 4r + 3 of w; quad holds the four q.
  void Add(U8x64 w, const int8_t* quad) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < 4; ++j) sum.lane[i] += w.byte[4 * i + j] * quad[j];
    }
  }
  I32x16 End() const { return sum; }
};

}  // namespace
