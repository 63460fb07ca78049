// The row kernels of rows.h, written once over the 16-lane vector.
//
// Included by isa/*/rows.cc after that folder's vec.h.
#include <cstddef>
#include <cstdint>

#include "compute/isa/functions-inl.h"
#include "compute/rows.h"

namespace {

constexpr float kMinusInfinity = -__builtin_inff();

KVERN_INLINE F32x16 LoadRun(const float* p, int count) {
  return count == kLanes ? Load(p) : LoadFirst(p, count);
}
KVERN_INLINE void StoreRun(float* p, F32x16 v, int count) {
  if (count == kLanes) {
    Store(p, v);
  } else {
    StoreFirst(p, v, count);
  }
}

// Calls step(first, count) for each run of 16 elements in ascending order; the last may be shorter.
template <typename Step>
KVERN_INLINE void ForEachRun(size_t n, Step step) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, static_cast<int>(n - i));
}

// out = f(x) over a row.
template <typename Function>
KVERN_INLINE void MapRow(const float* x, size_t n, float* out, Function f) {
  ForEachRun(n, [&](size_t i, int count) { StoreRun(out + i, f(LoadRun(x + i, count)), count); });
}

void RmsNorm(const float* x, const float* weight, size_t n, float eps, float* out) {
  F32x16 sum = Set1(0.0f);
  ForEachRun(n, [&](size_t i, int count) {
    const F32x16 v = LoadRun(x + i, count);
    sum = Fma(v, v, sum);
  });
  const float mean = Fold(sum) / static_cast<float>(n);
  const F32x16 r = Set1(1.0f / SqrtScalar(mean + eps));
  ForEachRun(n, [&](size_t i, int count) {
    const F32x16 normed = Mul(LoadRun(x + i, count), r);
    StoreRun(out + i, Mul(normed, LoadRun(weight + i, count)), count);
  });
}

void AddRow(float* x, const float* y, size_t n) {
  ForEachRun(n, [&](size_t i, int count) {
    StoreRun(x + i, Add(LoadRun(x + i, count), LoadRun(y + i, count)), count);
  });
}

void ScaleRow(float* x, float factor, size_t n) {
  MapRow(x, n, x, [&](F32x16 v) { return Mul(v, Set1(factor)); });
}

void SiluMul(const float* gate, const float* up, size_t n, float* out) {
  ForEachRun(n, [&](size_t i, int count) {
    StoreRun(out + i, Mul(Silu(LoadRun(gate + i, count)), LoadRun(up + i, count)), count);
  });
}

// (a, b) turned by the angle of (c, s): a' = fma(a, c, -(b·s)), b' = fma(a, s, b·c).
KVERN_INLINE void Rotate(F32x16& a, F32x16& b, F32x16 c, F32x16 s) {
  const F32x16 turned = Fma(a, c, Negate(Mul(b, s)));
  b = Fma(a, s, Mul(b, c));
  a = turned;
}

void RopeInterleaved(float* x, const float* cos, const float* sin, size_t dims) {
  ForEachRun(dims / 2, [&](size_t i, int count) {
    float pairs[2 * kLanes] = {};
    const bool whole = count == kLanes;
    if (!whole) __builtin_memcpy(pairs, x + 2 * i, 2 * sizeof(float) * static_cast<size_t>(count));
    float* const p = whole ? x + 2 * i : pairs;
    F32x16 a, b;
    LoadPairs(p, a, b);
    Rotate(a, b, LoadRun(cos + i, count), LoadRun(sin + i, count));
    StorePairs(p, a, b);
    if (!whole) __builtin_memcpy(x + 2 * i, pairs, 2 * sizeof(float) * static_cast<size_t>(count));
  });
}

void RopeNeox(float* x, const float* cos, const float* sin, size_t dims) {
  float* const second = x + dims / 2;
  ForEachRun(dims / 2, [&](size_t i, int count) {
    F32x16 a = LoadRun(x + i, count), b = LoadRun(second + i, count);
    Rotate(a, b, LoadRun(cos + i, count), LoadRun(sin + i, count));
    StoreRun(x + i, a, count);
    StoreRun(second + i, b, count);
  });
}

// An infinity or NaN has the largest exponent, so its magnitude is the largest as an integer.
bool AllFinite(const float* x, size_t n) {
  I32x16 largest = Set1Int(0);
  ForEachRun(n, [&](size_t i, int count) {
    largest = MaxInt(largest, AndInt(Bits(LoadRun(x + i, count)), Set1Int(0x7FFFFFFF)));
  });
  return FoldMaxInt(largest) < 0x7F800000;
}

float MaxOfRow(const float* x, size_t n) {
  const F32x16 none = Set1(kMinusInfinity);
  F32x16 largest = none;
  ForEachRun(n, [&](size_t i, int count) {
    largest = Max(SelectRange(0, count, LoadRun(x + i, count), none), largest);
  });
  return FoldMax(largest);
}

// Calls use(first, count, exp(x - max)) for each run and returns Σ exp(x - max).
template <typename Use>
KVERN_INLINE float SumOfExp(const float* x, size_t n, float max, Use use) {
  F32x16 sum = Set1(0.0f);
  ForEachRun(n, [&](size_t i, int count) {
    const F32x16 e = Exp(Sub(LoadRun(x + i, count), Set1(max)));
    use(i, count, e);
    sum = Add(sum, SelectRange(0, count, e, Set1(0.0f)));
  });
  return Fold(sum);
}

float LogSumExp(const float* x, size_t n) {
  const float max = MaxOfRow(x, n);
  const float sum = SumOfExp(x, n, max, [](size_t, int, F32x16) {});
  float log[kLanes];
  Store(log, Log(Set1(sum)));
  return max + log[0];
}

void Softmax(float* x, size_t n) {
  const float max = MaxOfRow(x, n);
  const float sum =
      SumOfExp(x, n, max, [&](size_t i, int count, F32x16 e) { StoreRun(x + i, e, count); });
  MapRow(x, n, x, [&](F32x16 e) { return Div(e, Set1(sum)); });
}

template <F32x16 (*kFunction)(F32x16)>
void FunctionRow(const float* x, size_t n, float* out) {
  MapRow(x, n, out, [](F32x16 v) { return kFunction(v); });
}

constexpr kvern::compute::RowKernels MakeRowKernels(const char* isa) {
  return {
      .isa = isa,
      .rms_norm = RmsNorm,
      .add = AddRow,
      .scale = ScaleRow,
      .silu_mul = SiluMul,
      .rope_interleaved = RopeInterleaved,
      .rope_neox = RopeNeox,
      .all_finite = AllFinite,
      .log_sum_exp = LogSumExp,
      .softmax = Softmax,
      .exp2_non_positive = FunctionRow<Exp2NonPositive>,
      .exp = FunctionRow<Exp>,
      .log = FunctionRow<Log>,
      .tanh = FunctionRow<Tanh>,
      .silu = FunctionRow<Silu>,
      .gelu_tanh = FunctionRow<GeluTanh>,
  };
}

}  // namespace
