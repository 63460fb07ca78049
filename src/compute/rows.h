// RowKernels: operations on one row of floats, once per instruction set with the same bits (rule
// N1).
//
// docs/numerics.md defines each one. Rows need no alignment and any length; a row of n floats is
// read and written in exactly n places. Sums put element i in lane i mod 16, in ascending order,
// and fold the lanes 8-4-2-1 (N9). `out` may be an input row, but must not overlap one otherwise.
// Inputs should be finite; what else comes out is stated below, and a NaN's sign and payload are
// unspecified. Callers run in the environment of base/fp_env.h.
//
// Plain data without state: safe from any thread.
#pragma once

#include <cstddef>

namespace kvern::compute {

// out[i] = f(x[i]), i < n.
using RowFunction = void (*)(const float* x, size_t n, float* out);

struct RowKernels {
  const char* isa;  // "scalar", "avx2", "avx512"

  // out = (x · r) · weight, r = 1 / sqrt(Σ x² / n + eps). n ≥ 1.
  void (*rms_norm)(const float* x, const float* weight, size_t n, float eps, float* out);
  // x += y.
  void (*add)(float* x, const float* y, size_t n);
  // x ·= factor.
  void (*scale)(float* x, float factor, size_t n);
  // out = silu(gate) · up.
  void (*silu_mul)(const float* gate, const float* up, size_t n, float* out);

  // Rotates x in place: pair i turns by the angle whose cosine and sine are cos[i], sin[i],
  // i < dims / 2. Pairs are (x[2i], x[2i + 1]), or for NeoX (x[i], x[i + dims / 2]). dims is even.
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, size_t dims);
  void (*rope_neox)(float* x, const float* cos, const float* sin, size_t dims);

  bool (*all_finite)(const float* x, size_t n);
  // log Σ exp(x[i]), for finite x and n ≥ 1.
  float (*log_sum_exp)(const float* x, size_t n);
  // x = exp(x - max) / Σ exp(x - max), for finite x and n ≥ 1.
  void (*softmax)(float* x, size_t n);

  RowFunction exp2_non_positive;  // 2^x for x ≤ 0; 0 below -115 and for NaN; exactly 1 at 0
  RowFunction exp;
  RowFunction log;  // -inf at 0, NaN below
  RowFunction tanh;
  RowFunction silu;       // x / (1 + exp(-x)); NaN at -inf
  RowFunction gelu_tanh;  // NaN at -inf
};

// The scalar table defines the results. isa.h says which ones this CPU runs.
extern const RowKernels kScalarRows;
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;

}  // namespace kvern::compute
