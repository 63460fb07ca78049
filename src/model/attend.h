// TileAttention: one thread's attention of one query tile against one KV head of one layer.
//
// Owns the scratch of one thread. Not thread-safe: one object a thread.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "model/attention_plan.h"

namespace kvern::model {

struct TileTask {
  const ForwardBatch* batch;
  const AttentionPlan* plan;
  const QueryTile* tile;
  uint32_t layer;
  uint32_t kv_head;
  uint32_t first_head;  // query heads [first_head, first_head + num_heads) of that KV head
  uint32_t num_heads;
  const float* queries;  // [rows][stride], scaled; head h at h · head_dim
  float* out;            // the same layout
  size_t stride;
};

class TileAttention {
 public:
  TileAttention(const compute::AttentionKernels* kernels, const compute::KvLayout& layout);

  void Run(const TileTask& task);

  size_t scratch_bytes() const;

 private:
  // Queries [first, first + count) of the tile against one chunk of one view.
  void AttendQueries(const TileTask& task, uint32_t first, uint32_t count, const PagedView& view,
                     uint32_t chunk);

  const compute::AttentionKernels* const kernels_;
  const compute::KvLayout layout_;
  const size_t partial_floats_;
  std::vector<float> queries_;
  std::vector<float> states_;
  std::vector<float> partials_;
  std::vector<uint32_t> positions_;  // of each query
  std::vector<uint8_t> started_;     // the state of a query holds something
};

}  // namespace kvern::model
