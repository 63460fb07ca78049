// WorkedExample: one attention head on paper-sized numbers, computed by the code that runs models.
//
// One layer, one head, d = 4; the weights of Q, K and V are the identity. Three tokens are
// prefilled in one pass and a fourth is decoded. Projections go through the linear kernels, rows
// into a block of a BlockPool through the store kernels, attention through AttendChunk: as in a
// forward pass. A pure function of its arguments; results are the same bits on every instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "kv/block_pool.h"

namespace kvern::engine {

// Row-major.
struct Matrix {
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(uint32_t num_rows, uint32_t num_cols)
      : rows(num_rows), cols(num_cols), values(size_t{num_rows} * num_cols) {}
  float* row(uint32_t r) { return values.data() + size_t{r} * cols; }
  const float* row(uint32_t r) const { return values.data() + size_t{r} * cols; }
};

// What one step computed, one row per new token, and the cache after it.
struct WorkedStep {
  Matrix inputs;   // X
  Matrix queries;  // Q = X·Wq, before the kernels' scale
  Matrix keys;     // K = X·Wk, as written to the cache
  Matrix values;   // V = X·Wv

  // A column per token of the sequence so far.
  Matrix scores;   // Q·Kᵀ/√d, and -infinity where the mask hides a token
  Matrix weights;  // softmax of each row of the scores
  Matrix outputs;  // weights · V

  Matrix cached_keys;  // as attention reads them: all rows of the cache, rounded to its dtype
  Matrix cached_values;
  std::vector<std::byte> block;  // every byte of the cache's block
  kv::StateCounts pool_bytes;
};

struct WorkedExample {
  compute::KvLayout layout;
  kv::StateCounts pool_before;
  WorkedStep prefill;
  WorkedStep decode;
  kv::StateCounts pool_after;  // once the sequence has given its block back
  // All four tokens in one pass, as if decode had no cache. Its last row of outputs is decode's,
  // and its cache is decode's, in every bit.
  WorkedStep recomputed;
};

// Errors: kOutOfMemory.
Result<WorkedExample> ComputeWorkedExample(const compute::Isa& isa, compute::KvDtype k_dtype,
                                           compute::KvDtype v_dtype);

}  // namespace kvern::engine
