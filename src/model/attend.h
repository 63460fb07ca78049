// TileAttention: one thread's part of the attention of one layer, as the plan cuts it.
//
// Owns the scratch of one thread. Not thread-safe: one object a thread. After a barrier, every
// thread may fold rows of tiles that another one began.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "model/attention_plan.h"

namespace kvern::model {

// Queries of a tile and KV head: as many as make reading a chunk cheap beside computing with it.
inline constexpr uint32_t kTileQueries = 96;

// One layer of a batch.
struct AttentionTask {
  const ForwardBatch* batch;
  const AttentionPlan* plan;
  uint32_t layer;
  const float* queries;  // [rows][stride], scaled; head h at h · head_dim
  float* out;            // the same layout
  size_t stride;
  float* slots;  // partials of cut tiles
};

class TileAttention {
 public:
  TileAttention(const compute::AttentionKernels* kernels, const compute::KvLayout& layout,
                uint32_t num_query_heads);

  // What its plan must be made for. A KV head with more query heads than a tile takes counts as
  // several.
  AttentionShape ShapeOf(size_t num_threads, size_t max_slots) const;

  // The units that the plan gives to `thread`. Writes `out` of whole tiles; a cut one is folded.
  void RunShare(const AttentionTask& task, size_t thread);

  // The attention of one row of a cut tile that `owner` began: all heads, to `out`.
  void FoldRow(const AttentionTask& task, const TileAttention& owner, uint32_t row, float* out);

  size_t scratch_bytes() const;

 private:
  struct Unit {
    const QueryTile* tile;
    TileStep step;
    uint32_t head;
  };

  uint32_t num_heads() const { return layout_.num_kv_heads * parts_; }
  void RunTile(const AttentionTask& task, const QueryTile& tile, uint32_t begin, uint32_t end);
  void GatherQueries(const AttentionTask& task, const QueryTile& tile);
  void AttendUnit(const AttentionTask& task, const Unit& unit, uint32_t index, float* partials);
  void AttendQueries(const AttentionTask& task, const Unit& unit, uint32_t first, uint32_t count,
                     const std::byte* const* ahead, float* partials);
  void MergeUnit(const Unit& unit, const float* partials);
  void Finish(const AttentionTask& task, const QueryTile& tile);
  void MergeInto(float* state, uint8_t& started, const float* partial) const;
  const std::byte* const* PlanesAhead(const AttentionTask& task, const Unit& unit, uint32_t index);
  // Query i of the tile and KV head.
  size_t StateIndex(uint32_t head, uint32_t i) const { return size_t{head} * kTileQueries + i; }
  float* Query(uint32_t head, uint32_t i) {
    return &queries_[StateIndex(head, i) * compute::QueryFloats(layout_.head_dim)];
  }
  float* State(uint32_t head, uint32_t i) {
    return &states_[StateIndex(head, i) * partial_floats_];
  }

  const compute::AttentionKernels* const kernels_;
  const compute::KvLayout layout_;
  const uint32_t parts_;  // of a KV head
  const uint32_t group_size_;
  const size_t page_bytes_;
  const size_t k_plane_bytes_;
  const size_t partial_floats_;
  // By StateIndex(head, query of the tile).
  std::vector<float> queries_;
  std::vector<float> states_;
  std::vector<uint8_t> started_;     // the state holds something
  std::vector<uint32_t> positions_;  // by query of the tile
  std::vector<float> partials_;      // of one unit
  // One row of a cut tile, by query head. Apart from states_, which others may be reading.
  std::vector<float> folds_;
  std::vector<uint8_t> fold_started_;
  const std::byte* ahead_[2 * kChunkBlocks] = {};
};

}  // namespace kvern::model
