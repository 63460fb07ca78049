// PeakKernels: the most that a core does with one instruction set, for benchmarks to compare
// kernels with.
//
// The arithmetic loops keep their operands in registers and have more independent chains than the
// CPU's latency needs, so that execution ports alone limit them. Plain functions without state:
// safe from any thread. What they compute means nothing.
#pragma once

#include <cstddef>

namespace kvern::compute {

struct PeakKernels {
  // The instructions that exact sums of byte products are made of (isa/<name>/dot.h, small
  // weights): vpdpbusd in AVX-512, maddubs and a 16-bit addition in AVX2. Returns the number of
  // operations done in `rounds` rounds; a multiplication and its addition are two.
  double (*dot)(size_t rounds);
  // The same for fused multiply-adds of float vectors.
  double (*fma)(size_t rounds);
  // Reads every vector of [data, data + bytes), 64 bytes each, hinting `ahead` bytes early (0: no
  // hint).
  void (*read)(const std::byte* data, size_t bytes, size_t ahead);
};

}  // namespace kvern::compute
