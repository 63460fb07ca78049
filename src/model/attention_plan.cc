#include "model/attention_plan.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::model {
namespace {

// Reading a chunk costs about as much as computing with so many queries more.
constexpr uint32_t kReadCost = 2;

uint32_t LastPosition(const QueryRun& run) { return run.first_position + run.num_rows - 1; }

// Steps of a run behind the common chunks.
uint32_t PrivateSteps(const QueryRun& run, uint32_t common_chunks) {
  return LastPosition(run) / kChunkTokens + 1 - common_chunks;
}

class Planner {
 public:
  Planner(const ForwardBatch& batch, const AttentionShape& shape, AttentionPlan& plan)
      : batch_(batch), shape_(shape), plan_(plan) {
    plan.runs.clear();
    plan.tiles.clear();
    plan.tile_of_row.clear();
    plan.bounds.assign(shape.num_threads + 1, {0, 0});
    plan.first_rows.clear();
    uint32_t row = 0;
    for (const ForwardSlice& slice : batch.slices) {
      plan.first_rows.push_back(row);
      row += static_cast<uint32_t>(slice.tokens.size());
    }
    plan.tile_of_row.resize(row);
  }

  void Plan() {
    plan_.grouped.assign(batch_.slices.size(), 0);
    for (const SharedChunks& group : batch_.shared) {
      for (const uint32_t slice : group.slices) {
        AddSlice(slice, group.num_chunks);
        plan_.grouped[slice] = 1;
      }
      Close(group.num_chunks);
    }
    for (uint32_t slice = 0; slice < batch_.slices.size(); ++slice) {
      if (plan_.grouped[slice] != 0) continue;
      AddSlice(slice, 0);
      Close(0);
    }
    ShareOut();
  }

 private:
  // Adds the slice's rows to the open tile, closing it whenever it is full.
  void AddSlice(uint32_t slice, uint32_t common_chunks) {
    const ForwardSlice& s = batch_.slices[slice];
    const auto num_rows = static_cast<uint32_t>(s.tokens.size());
    for (uint32_t done = 0; done < num_rows;) {
      const uint32_t count = std::min(num_rows - done, shape_.max_rows - open_rows_);
      const uint32_t first_row = plan_.first_rows[slice] + done;
      plan_.runs.push_back({slice, first_row, count, s.first_position + done});
      std::fill_n(&plan_.tile_of_row[first_row], count, static_cast<uint32_t>(plan_.tiles.size()));
      open_rows_ += count;
      done += count;
      if (open_rows_ == shape_.max_rows) Close(common_chunks);
    }
  }

  void Close(uint32_t common_chunks) {
    if (open_rows_ == 0) return;
    const auto num_runs = static_cast<uint32_t>(plan_.runs.size()) - first_open_run_;
    uint32_t num_steps = common_chunks;
    for (uint32_t i = first_open_run_; i < plan_.runs.size(); ++i) {
      num_steps += PrivateSteps(plan_.runs[i], common_chunks);
    }
    const uint32_t num_units = num_steps * shape_.num_heads;
    plan_.tiles.push_back({.first_run = first_open_run_,
                           .num_runs = num_runs,
                           .num_rows = open_rows_,
                           .common_chunks = common_chunks,
                           .num_units = num_units,
                           .num_merged_units = num_units,
                           .owner = 0,
                           .first_slot = 0});
    first_open_run_ += num_runs;
    open_rows_ = 0;
  }

  uint64_t UnitCost(const QueryTile& tile, uint32_t step) const {
    const TileStep s = plan_.StepOf(tile, step);
    return uint64_t{s.num_blocks} * (s.num_rows * shape_.group_size + kReadCost);
  }

  uint64_t TileCost(const QueryTile& tile) const {
    uint64_t cost = 0;
    const uint32_t num_steps = tile.num_units / shape_.num_heads;
    for (uint32_t step = 0; step < num_steps; ++step) cost += UnitCost(tile, step);
    return cost * shape_.num_heads;
  }

  // Cuts the sequence of units where each thread has done its share of the cost.
  void ShareOut() {
    std::vector<uint64_t>& costs_before = plan_.costs_before;
    costs_before.assign(1, 0);
    for (const QueryTile& tile : plan_.tiles) {
      costs_before.push_back(costs_before.back() + TileCost(tile));
    }
    for (uint32_t thread = 1; thread <= shape_.num_threads; ++thread) {
      const uint64_t target = costs_before.back() * thread / shape_.num_threads;
      const auto behind = std::upper_bound(costs_before.begin(), costs_before.end(), target);
      const auto tile = static_cast<uint32_t>(behind - costs_before.begin() - 1);
      UnitPosition& bound = plan_.bounds[thread];
      bound = {tile, 0};
      if (tile < plan_.tiles.size()) Cut(bound, target - costs_before[tile], thread);
      const UnitPosition& before = plan_.bounds[thread - 1];
      if (bound.tile < before.tile) bound = before;
    }
  }

  // Moves `bound`, at the start of its tile, by `cost` into it; if there are no slots for what lies
  // behind, to the nearer end.
  void Cut(UnitPosition& bound, uint64_t cost, uint32_t thread) {
    QueryTile& tile = plan_.tiles[bound.tile];
    uint32_t step = 0;
    uint64_t unit_cost = UnitCost(tile, step);
    const uint64_t tile_cost = TileCost(tile);
    const bool nearer_the_end = cost > tile_cost / 2;
    while (cost >= unit_cost * shape_.num_heads) {
      cost -= unit_cost * shape_.num_heads;
      unit_cost = UnitCost(tile, ++step);
    }
    const auto unit = step * shape_.num_heads + static_cast<uint32_t>(cost / unit_cost);
    if (unit == 0) return;
    const bool is_cut = tile.num_merged_units < tile.num_units;
    const size_t slots = NumSlots(tile, unit);
    if (!is_cut && num_slots_ + slots > shape_.max_slots) {
      if (nearer_the_end) bound = {bound.tile + 1, 0};
      return;
    }
    bound.unit = unit;
    if (is_cut) return;
    tile.num_merged_units = unit;
    tile.owner = thread - 1;
    tile.first_slot = num_slots_;
    num_slots_ += slots;
  }

  // Of the units from `unit` on.
  size_t NumSlots(QueryTile tile, uint32_t unit) const {
    tile.num_merged_units = unit;
    tile.first_slot = 0;
    return plan_.SlotOf(tile, tile.num_units, shape_.num_heads, shape_.group_size);
  }

  const ForwardBatch& batch_;
  const AttentionShape& shape_;
  AttentionPlan& plan_;
  uint32_t first_open_run_ = 0;
  uint32_t open_rows_ = 0;
  size_t num_slots_ = 0;
};

}  // namespace

TileStep AttentionPlan::StepOf(const QueryTile& tile, uint32_t step) const {
  if (step < tile.common_chunks) {
    return {runs[tile.first_run].slice, step, 0, tile.num_rows, kChunkBlocks};
  }
  step -= tile.common_chunks;
  uint32_t first_row = 0;
  for (const QueryRun& run : RunsOf(tile)) {
    const uint32_t num_steps = PrivateSteps(run, tile.common_chunks);
    if (step < num_steps) {
      const uint32_t chunk = tile.common_chunks + step;
      const uint32_t seen = LastPosition(run) + 1 - chunk * kChunkTokens;
      const uint32_t num_blocks = std::min((seen + kBlockTokens - 1) / kBlockTokens, kChunkBlocks);
      return {run.slice, chunk, first_row, run.num_rows, num_blocks};
    }
    step -= num_steps;
    first_row += run.num_rows;
  }
  CHECK(false);
  return {};
}

size_t AttentionPlan::SlotOf(const QueryTile& tile, uint32_t unit, uint32_t num_heads,
                             uint32_t group_size) const {
  size_t slot = tile.first_slot;
  for (uint32_t i = tile.num_merged_units; i < unit;) {
    const uint32_t end = std::min(unit, (i / num_heads + 1) * num_heads);  // of the step
    slot += size_t{end - i} * StepOf(tile, i / num_heads).num_rows * group_size;
    i = end;
  }
  return slot;
}

void PlanAttention(const ForwardBatch& batch, const AttentionShape& shape, AttentionPlan& plan) {
  Planner(batch, shape, plan).Plan();
}

}  // namespace kvern::model
