#include "model/attend.h"

#include <algorithm>

namespace kvern::model {

using compute::kMaxChunkQueries;
using compute::VisibleRange;

TileAttention::TileAttention(const compute::AttentionKernels* kernels,
                             const compute::KvLayout& layout)
    : kernels_(kernels),
      layout_(layout),
      partial_floats_(compute::PartialFloats(layout.v_dim())),
      queries_(size_t{kMaxChunkQueries} * layout.head_dim),
      states_(kMaxChunkQueries * partial_floats_),
      partials_(states_.size()),
      positions_(kMaxChunkQueries),
      started_(kMaxChunkQueries) {}

size_t TileAttention::scratch_bytes() const {
  return (queries_.size() + states_.size() + partials_.size()) * sizeof(float);
}

void TileAttention::AttendQueries(const TileTask& task, uint32_t first, uint32_t count,
                                  const PagedView& view, uint32_t chunk) {
  VisibleRange visible[kMaxChunkQueries];
  uint32_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    visible[i] = compute::VisibleInChunk(positions_[first + i], /*window=*/0, chunk);
    end = std::max(end, visible[i].end);
  }
  compute::AttendChunk(*kernels_, layout_.k_dtype, layout_.v_dtype,
                       {.queries = &queries_[size_t{first} * layout_.head_dim],
                        .num_queries = count,
                        .head_dim = layout_.head_dim,
                        .v_dim = layout_.v_dim(),
                        .blocks = view.blocks + size_t{chunk} * kChunkBlocks,
                        .num_blocks = (end + kBlockTokens - 1) / kBlockTokens,
                        .k_offset = layout_.k_offset(task.layer, task.kv_head),
                        .v_offset = layout_.v_offset(task.layer, task.kv_head),
                        .visible = visible,
                        .partials = partials_.data()});
  for (uint32_t i = 0; i < count; ++i) {
    if (visible[i].empty()) continue;
    float* state = &states_[(first + i) * partial_floats_];
    const float* partial = &partials_[i * partial_floats_];
    if (started_[first + i] != 0) {
      kernels_->merge(state, partial, layout_.v_dim());
    } else {
      std::copy_n(partial, partial_floats_, state);
      started_[first + i] = 1;
    }
  }
}

void TileAttention::Run(const TileTask& task) {
  const uint32_t dim = layout_.head_dim;
  const auto runs = task.plan->RunsOf(*task.tile);
  uint32_t num_queries = 0;
  for (const QueryRun& run : runs) {
    for (uint32_t r = 0; r < run.num_rows; ++r) {
      const float* row = task.queries + (run.first_row + r) * task.stride;
      std::copy_n(row + size_t{task.first_head} * dim, size_t{task.num_heads} * dim,
                  &queries_[size_t{num_queries} * dim]);
      std::fill_n(&positions_[num_queries], task.num_heads, run.first_position + r);
      num_queries += task.num_heads;
    }
  }
  std::fill_n(started_.begin(), num_queries, uint8_t{0});

  const PagedView& common = task.batch->slices[runs[0].slice].view;
  for (uint32_t chunk = 0; chunk < task.tile->common_chunks; ++chunk) {
    AttendQueries(task, 0, num_queries, common, chunk);
  }
  uint32_t first = 0;
  for (const QueryRun& run : runs) {
    const uint32_t count = run.num_rows * task.num_heads;
    const uint32_t last_position = run.first_position + run.num_rows - 1;
    const PagedView& view = task.batch->slices[run.slice].view;
    for (uint32_t chunk = task.tile->common_chunks; chunk <= last_position / kChunkTokens;
         ++chunk) {
      AttendQueries(task, first, count, view, chunk);
    }
    for (uint32_t i = 0; i < count; ++i) {
      float* row = task.out + (run.first_row + i / task.num_heads) * task.stride;
      kernels_->finish(&states_[(first + i) * partial_floats_], dim,
                       row + size_t{task.first_head + i % task.num_heads} * dim);
    }
    first += count;
  }
}

}  // namespace kvern::model
