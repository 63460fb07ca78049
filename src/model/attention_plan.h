// AttentionPlan: which queries of a batch meet the K/V cache together, and which thread does it,
// fixed once per step.
//
// A tile is a list of runs: consecutive rows of one slice. All queries of a tile meet the leading
// `common_chunks` together, then each run goes on alone: each chunk met is a step. A step of one KV
// head is a unit, the smallest piece of work; the units of a tile are numbered step by step, the
// heads of a step in order. Threads take equal shares of all units in that order. So a tile may be
// cut: the thread that begins it merges what it computes, later threads store partials in slots,
// and whoever needs a row of the tile folds them in chunk order.
//
// Neither the tile nor the cut changes a result. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/forward.h"

namespace kvern::model {

struct QueryRun {
  uint32_t slice;
  uint32_t first_row;  // in the batch
  uint32_t num_rows;
  uint32_t first_position;
};

struct QueryTile {
  uint32_t first_run;
  uint32_t num_runs;
  uint32_t num_rows;
  uint32_t common_chunks;
  uint32_t num_units;
  uint32_t num_merged_units;  // by the owner; those behind are in slots
  uint32_t owner;             // the thread that begins the tile, where it is cut
  size_t first_slot;          // of unit num_merged_units; a unit has a slot for each of its queries
};

// Rows [first_row, first_row + num_rows) of a tile meet `chunk` of a slice's view.
struct TileStep {
  uint32_t slice;
  uint32_t chunk;
  uint32_t first_row;
  uint32_t num_rows;
  uint32_t num_blocks;  // of the chunk that these rows see
};

// A place in the sequence of all units: before `unit` of `tile`.
struct UnitPosition {
  uint32_t tile;
  uint32_t unit;
};

struct AttentionShape {
  uint32_t max_rows;    // of a tile
  uint32_t num_heads;   // units of a step
  uint32_t group_size;  // queries of a row and head
  uint32_t num_threads;
  size_t max_slots;  // partials that may be stored
};

struct AttentionPlan {
  std::vector<QueryRun> runs;
  std::vector<QueryTile> tiles;
  std::vector<uint32_t> tile_of_row;
  std::vector<UnitPosition> bounds;  // thread i has the units from bounds[i] to bounds[i + 1]
  // Notes of PlanAttention(), of no meaning after it.
  std::vector<uint32_t> first_rows;    // by slice
  std::vector<uint8_t> grouped;        // by slice
  std::vector<uint64_t> costs_before;  // by tile

  std::span<const QueryRun> RunsOf(const QueryTile& tile) const {
    return std::span(runs).subspan(tile.first_run, tile.num_runs);
  }
  // REQUIRES: `step` is less than num_units / num_heads.
  TileStep StepOf(const QueryTile& tile, uint32_t step) const;
  // Of the first query of a unit that is not merged.
  size_t SlotOf(const QueryTile& tile, uint32_t unit, uint32_t num_heads,
                uint32_t group_size) const;
};

// Plans into `plan`, whose memory is used again. Tiles hold the members of a shared group together,
// everyone else alone.
void PlanAttention(const ForwardBatch& batch, const AttentionShape& shape, AttentionPlan& plan);

}  // namespace kvern::model
