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

// The weights of a row of scores in its place; their sum. kBlocks: of the chunk, where that is
// known.
template <uint32_t kBlocks>
KVERN_INLINE float Exponentiate(float max, uint32_t num_blocks, float* row) {
  const uint32_t count = kBlocks > 0 ? kBlocks : num_blocks;
  F32x16 sum = Set1(0.0f);
#pragma GCC unroll 4
  for (uint32_t b = 0; b < count; ++b) {
    const F32x16 weight = Exp2NonPositive(Sub(Load(row + b * kBlockTokens), Set1(max)));
    Store(row + b * kBlockTokens, weight);
    sum = Add(sum, weight);
  }
  return Fold(sum);
}

// All maxima first: the exponentials of many rows then overlap.
void Weights(const ChunkTask& task, float* scores) {
  const size_t stride = PartialFloats(task.v_dim);
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    float* const row = scores + i * kChunkTokens;
    task.partials[i * stride] = HideAndFindMax(task.visible[i], task.num_blocks, row);
  }
  for (uint32_t i = 0; i < task.num_queries; ++i) {
    float* const row = scores + i * kChunkTokens;
    float* const partial = task.partials + i * stride;
    partial[1] = task.num_blocks == kvern::kChunkBlocks
                     ? Exponentiate<kvern::kChunkBlocks>(partial[0], task.num_blocks, row)
                     : Exponentiate<0>(partial[0], task.num_blocks, row);
  }
}

// One exponential: the share of the larger maximum is exactly 1. Without branches, for which of the
// two it is cannot be foretold.
void Merge(float* state, const float* partial, uint32_t v_dim) {
  const float max = state[0] > partial[0] ? state[0] : partial[0];
  const F32x16 old_max = Set1(state[0]), new_max = Set1(partial[0]), largest = Set1(max);
  const F32x16 smaller = SelectGreaterEqual(old_max, largest, new_max, old_max);
  const F32x16 share = Exp2NonPositive(Sub(smaller, largest));
  const F32x16 keep = SelectGreaterEqual(old_max, largest, Set1(1.0f), share);
  const F32x16 take = SelectGreaterEqual(new_max, largest, Set1(1.0f), share);
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
