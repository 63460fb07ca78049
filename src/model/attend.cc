#include "model/attend.h"

#include <algorithm>

namespace kvern::model {

using compute::VisibleRange;

namespace {

// Queries of a call: whole tiles of the kernels, whose scores stay in the L1 cache.
constexpr uint32_t kCallQueries = compute::kMaxChunkQueries;

// The fewest equal parts of a group of query heads that a tile takes.
uint32_t PartsOf(uint32_t group_size) {
  uint32_t parts = 1;
  while (group_size % parts != 0 || group_size / parts > kTileQueries) ++parts;
  return parts;
}

}  // namespace

TileAttention::TileAttention(const compute::AttentionKernels* kernels,
                             const compute::KvLayout& layout, uint32_t num_query_heads)
    : kernels_(kernels),
      layout_(layout),
      parts_(PartsOf(num_query_heads / layout.num_kv_heads)),
      group_size_(num_query_heads / (layout.num_kv_heads * parts_)),
      page_bytes_(layout.page_bytes()),
      k_plane_bytes_(layout.k_plane_bytes()),
      partial_floats_(compute::PartialFloats(layout.v_dim())),
      queries_(size_t{num_heads()} * kTileQueries * compute::QueryFloats(layout.head_dim)),
      states_(num_heads() * kTileQueries * partial_floats_),
      started_(size_t{num_heads()} * kTileQueries),
      positions_(kTileQueries),
      partials_(kTileQueries * partial_floats_),
      folds_(size_t{num_heads()} * group_size_ * partial_floats_),
      fold_started_(size_t{num_heads()} * group_size_) {}

size_t TileAttention::scratch_bytes() const {
  return (queries_.size() + states_.size() + partials_.size() + folds_.size()) * sizeof(float);
}

void TileAttention::GatherQueries(const AttentionTask& task, const QueryTile& tile) {
  const uint32_t dim = layout_.head_dim;
  const auto prepare = kernels_->Of(layout_.k_dtype).prepare;
  uint32_t i = 0;
  for (const QueryRun& run : task.plan->RunsOf(tile)) {
    for (uint32_t r = 0; r < run.num_rows; ++r, i += group_size_) {
      const float* row = task.queries + (run.first_row + r) * task.stride;
      std::fill_n(&positions_[i], group_size_, run.first_position + r);
      for (uint32_t query = 0; query < num_heads() * group_size_; ++query) {
        prepare(row + size_t{query} * dim, dim,
                Query(query / group_size_, i + query % group_size_));
      }
    }
  }
}

// What unit `index` fetches early: its part of all planes that the tile's next step reads, in the
// order of memory. Null where none follows.
const std::byte* const* TileAttention::PlanesAhead(const AttentionTask& task, const Unit& unit,
                                                   uint32_t index) {
  const uint32_t next_step = index / num_heads() + 1;
  if (next_step == unit.tile->num_units / num_heads()) return nullptr;
  const TileStep next = task.plan->StepOf(*unit.tile, next_step);
  std::byte* const* blocks = task.batch->slices[next.slice].view.blocks + next.chunk * kChunkBlocks;
  const uint32_t first = unit.head / parts_ * 2 * kChunkBlocks;
  const uint32_t planes_per_block = 2 * layout_.num_kv_heads;
  uint32_t block = first / planes_per_block, plane = first % planes_per_block;
  const size_t layer_offset = layout_.k_offset(task.layer, 0);
  for (uint32_t i = 0; i < 2 * unit.step.num_blocks; ++i) {
    ahead_[i] = blocks[std::min(block, next.num_blocks - 1)] + layer_offset +
                plane / 2 * page_bytes_ + plane % 2 * k_plane_bytes_;
    if (++plane == planes_per_block) plane = 0, ++block;
  }
  return ahead_;
}

void TileAttention::AttendUnit(const AttentionTask& task, const Unit& unit, uint32_t index,
                               float* partials) {
  const uint32_t first = unit.step.first_row * group_size_;
  const uint32_t count = unit.step.num_rows * group_size_;
  // The first call brings what later ones find in the cache.
  const std::byte* const* ahead = PlanesAhead(task, unit, index);
  for (uint32_t done = 0; done < count; done += kCallQueries) {
    AttendQueries(task, unit, first + done, std::min(kCallQueries, count - done),
                  done == 0 ? ahead : nullptr, partials + done * partial_floats_);
  }
}

// Queries [first, first + count) of the tile.
void TileAttention::AttendQueries(const AttentionTask& task, const Unit& unit, uint32_t first,
                                  uint32_t count, const std::byte* const* ahead, float* partials) {
  const TileStep& step = unit.step;
  VisibleRange visible[kCallQueries];
  uint32_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    visible[i] = compute::VisibleInChunk(positions_[first + i], /*window=*/0, step.chunk);
    end = std::max(end, visible[i].end);
  }
  if (end == 0) return;
  const PagedView& view = task.batch->slices[step.slice].view;
  const size_t page_offset = layout_.k_offset(task.layer, unit.head / parts_);
  compute::AttendChunk(*kernels_, layout_.k_dtype, layout_.v_dtype,
                       {.queries = Query(unit.head, first),
                        .num_queries = count,
                        .head_dim = layout_.head_dim,
                        .v_dim = layout_.v_dim(),
                        .blocks = view.blocks + size_t{step.chunk} * kChunkBlocks,
                        .num_blocks = (end + kBlockTokens - 1) / kBlockTokens,
                        .ahead = ahead,
                        .k_offset = page_offset,
                        .v_offset = page_offset + k_plane_bytes_,
                        .visible = visible,
                        .partials = partials});
}

void TileAttention::MergeInto(float* state, uint8_t& started, const float* partial) const {
  if (started != 0) {
    kernels_->merge(state, partial, layout_.v_dim());
  } else {
    std::copy_n(partial, partial_floats_, state);
    started = 1;
  }
}

void TileAttention::MergeUnit(const Unit& unit, const float* partials) {
  const uint32_t first = unit.step.first_row * group_size_;
  for (uint32_t i = 0; i < unit.step.num_rows * group_size_; ++i) {
    if (positions_[first + i] / kChunkTokens < unit.step.chunk) continue;
    MergeInto(State(unit.head, first + i), started_[StateIndex(unit.head, first + i)],
              partials + i * partial_floats_);
  }
}

AttentionShape TileAttention::ShapeOf(size_t num_threads, size_t max_slots) const {
  return {.max_rows = kTileQueries / group_size_,
          .num_heads = num_heads(),
          .group_size = group_size_,
          .num_threads = static_cast<uint32_t>(num_threads),
          .max_slots = max_slots};
}

void TileAttention::RunShare(const AttentionTask& task, size_t thread) {
  const AttentionPlan& plan = *task.plan;
  const UnitPosition from = plan.bounds[thread], to = plan.bounds[thread + 1];
  for (uint32_t i = from.tile; i < plan.tiles.size() && i <= to.tile; ++i) {
    const uint32_t begin = i == from.tile ? from.unit : 0;
    const uint32_t end = i == to.tile ? to.unit : plan.tiles[i].num_units;
    if (begin < end) RunTile(task, plan.tiles[i], begin, end);
  }
}

// Units [begin, end).
void TileAttention::RunTile(const AttentionTask& task, const QueryTile& tile, uint32_t begin,
                            uint32_t end) {
  GatherQueries(task, tile);
  if (begin == 0) std::fill(started_.begin(), started_.end(), uint8_t{0});
  size_t slot = begin == 0 ? 0 : task.plan->SlotOf(tile, begin, num_heads(), group_size_);
  Unit unit = {&tile, {}, 0};
  for (uint32_t index = begin; index < end; ++index) {
    unit.head = index % num_heads();
    if (unit.head == 0 || index == begin) unit.step = task.plan->StepOf(tile, index / num_heads());
    if (begin == 0) {
      AttendUnit(task, unit, index, partials_.data());
      MergeUnit(unit, partials_.data());
    } else {
      AttendUnit(task, unit, index, task.slots + slot * partial_floats_);
      slot += size_t{unit.step.num_rows} * group_size_;
    }
  }
  if (begin == 0 && end == tile.num_units) Finish(task, tile);
}

void TileAttention::Finish(const AttentionTask& task, const QueryTile& tile) {
  const uint32_t dim = layout_.head_dim;
  uint32_t i = 0;
  for (const QueryRun& run : task.plan->RunsOf(tile)) {
    for (uint32_t r = 0; r < run.num_rows; ++r, i += group_size_) {
      float* row = task.out + (run.first_row + r) * task.stride;
      for (uint32_t query = 0; query < num_heads() * group_size_; ++query) {
        kernels_->finish(State(query / group_size_, i + query % group_size_), dim,
                         row + size_t{query} * dim);
      }
    }
  }
}

void TileAttention::FoldRow(const AttentionTask& task, const TileAttention& owner, uint32_t row,
                            float* out) {
  const QueryTile& tile = task.plan->tiles[task.plan->tile_of_row[row]];
  uint32_t row_in_tile = 0;
  for (const QueryRun& run : task.plan->RunsOf(tile)) {
    if (row - run.first_row < run.num_rows) {
      row_in_tile += row - run.first_row;
      break;
    }
    row_in_tile += run.num_rows;
  }
  const uint32_t first = row_in_tile * group_size_;  // query of the tile
  for (uint32_t head = 0; head < num_heads(); ++head) {
    const size_t from = owner.StateIndex(head, first), to = size_t{head} * group_size_;
    std::copy_n(&owner.started_[from], group_size_, &fold_started_[to]);
    std::copy_n(&owner.states_[from * partial_floats_], group_size_ * partial_floats_,
                &folds_[to * partial_floats_]);
  }
  TileStep step = {};
  size_t slot = tile.first_slot;
  for (uint32_t unit = tile.num_merged_units; unit < tile.num_units; ++unit) {
    const uint32_t head = unit % num_heads();
    if (head == 0 || unit == tile.num_merged_units) {
      step = task.plan->StepOf(tile, unit / num_heads());
    }
    const size_t first_slot = slot;
    slot += size_t{step.num_rows} * group_size_;
    if (row_in_tile - step.first_row >= step.num_rows) continue;
    if (owner.positions_[first] / kChunkTokens < step.chunk) continue;
    const uint32_t i = (row_in_tile - step.first_row) * group_size_;
    const float* partials = task.slots + (first_slot + i) * partial_floats_;
    for (uint32_t g = 0; g < group_size_; ++g) {
      const size_t query = size_t{head} * group_size_ + g;
      MergeInto(&folds_[query * partial_floats_], fold_started_[query],
                partials + g * partial_floats_);
    }
  }
  for (size_t query = 0; query < fold_started_.size(); ++query) {
    kernels_->finish(&folds_[query * partial_floats_], layout_.head_dim,
                     out + query * layout_.head_dim);
  }
}

}  // namespace kvern::model
