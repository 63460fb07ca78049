// The attention kernels of an instruction set, over the vector and dots of the including file
// (rules N3, N5, N6).
#include "compute/isa/attention_common-inl.h"
#include "compute/isa/attention_float-inl.h"
#include "compute/isa/attention_integer-inl.h"
#include "compute/isa/functions-inl.h"

namespace {

using kvern::compute::VisibleRange;

constexpr float kNegativeInfinity = -__builtin_inff();

KVERN_INLINE int LaneOf(uint32_t token, uint32_t block) {
  const uint32_t begin = block * kBlockTokens;
  if (token <= begin) return 0;
  return token - begin < kBlockTokens ? static_cast<int>(token - begin) : kLanes;
}

// The largest visible score of a query; those of hidden keys become -inf.
KVERN_INLINE float HideAndFindMax(VisibleRange visible, uint32_t num_blocks, float* row) {
  const F32x16 hidden = Set1(kNegativeInfinity);
  F32x16 largest = hidden;
  if (visible.first == 0 && visible.end >= num_blocks * kBlockTokens) {
    for (uint32_t b = 0; b < num_blocks; ++b) largest = Max(largest, Load(row + b * kBlockTokens));
    return FoldMax(largest);
  }
  for (uint32_t b = 0; b < num_blocks; ++b) {
    const int first = LaneOf(visible.first, b), end = LaneOf(visible.end, b);
    const F32x16 seen = SelectRange(first, end, Load(row + b * kBlockTokens), hidden);
    Store(row + b * kBlockTokens, seen);
    largest = Max(largest, seen);
  }
  return FoldMax(largest);
}

void Weights(const ChunkTask& task, float* scores) {
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    float* row = scores + i * kChunkTokens;
    const float max = HideAndFindMax(task.visible[i], task.num_blocks, row);
    F32x16 sum = Set1(0.0f);
    for (uint32_t b = 0; b < task.num_blocks; ++b) {
      const F32x16 shifted = Sub(Load(row + b * kBlockTokens), Set1(max));
      const F32x16 weight = Exp2NonPositive(shifted);
      Store(row + b * kBlockTokens, weight);
      sum = Add(sum, weight);
    }
    float* partial = task.partials + i * PartialFloats(task.v_dim);
    partial[0] = max;
    partial[1] = Fold(sum);
  }
}

// 2^(x - max): exactly 1 where x is the maximum.
KVERN_INLINE F32x16 ShareOfMax(float x, float max) {
  return x == max ? Set1(1.0f) : Exp2NonPositive(Set1(x - max));
}

void Merge(float* state, const float* partial, uint32_t v_dim) {
  const float max = state[0] > partial[0] ? state[0] : partial[0];
  const F32x16 keep = ShareOfMax(state[0], max), take = ShareOfMax(partial[0], max);
  state[0] = max;
  state[1] = FmaScalar(state[1], FirstLane(keep), partial[1] * FirstLane(take));
  for (uint32_t d = 16; d < 16 + v_dim; d += kLanes) {
    Store(state + d, Fma(Load(state + d), keep, Mul(Load(partial + d), take)));
  }
}

void Finish(const float* state, uint32_t head_dim, float* out) {
  const F32x16 scale = Set1(1.0f / state[1]);
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const int count = LanesOf(head_dim - d);
    StoreFirst(out + d, Mul(Load(state + 16 + d), scale), count);
  }
}

}  // namespace

namespace kvern::compute::KVERN_ISA {

extern const AttentionKernels kAttention;
const AttentionKernels kAttention = {
    .dtypes = {kFloatKernels<KvF32>, kFloatKernels<KvF16>, kFloatKernels<KvBf16>,
               kIntegerKernels<KvQ8r>, kIntegerKernels<KvQ4r>},
    .weights = Weights,
    .merge = Merge,
    .finish = Finish,
};

}  // namespace kvern::compute::KVERN_ISA
