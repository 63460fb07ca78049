#include "compute/attention.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::compute {

void AttendChunk(const AttentionKernels& kernels, KvDtype k_dtype, KvDtype v_dtype,
                 const ChunkTask& task) {
  CHECK(task.num_queries <= kMaxChunkQueries && task.num_blocks <= kChunkBlocks);
  alignas(64) float scores[kMaxChunkQueries * kChunkTokens];
  kernels.Of(k_dtype).scores(task, scores);
  kernels.weights(task, scores);
  kernels.Of(v_dtype).outputs(task, scores);
}

VisibleRange VisibleInChunk(uint32_t position, uint32_t window, uint32_t chunk) {
  const uint32_t begin = chunk * kChunkTokens;
  const uint32_t seen_end = std::max(position + 1, begin) - begin;
  const uint32_t first_seen = window == 0 || position < window ? 0 : position - window + 1;
  const uint32_t first = std::max(first_seen, begin) - begin;
  return {std::min(first, kChunkTokens), std::min(seen_end, kChunkTokens)};
}

}  // namespace kvern::compute
