// AttentionPlan: which queries of a batch meet the K/V cache together, fixed once per step.
//
// A tile is a list of runs: consecutive rows of one slice. All queries of a tile meet the leading
// `common_chunks` together, then each run goes on alone. Tiles are the unit of work of a thread.
// Which tile a query is in never changes its result. Plain data.
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
};

struct AttentionPlan {
  std::vector<QueryRun> runs;
  std::vector<QueryTile> tiles;

  std::span<const QueryRun> RunsOf(const QueryTile& tile) const {
    return std::span(runs).subspan(tile.first_run, tile.num_runs);
  }
};

// Tiles of at most `max_rows` rows: the members of a shared group together, everyone else alone.
AttentionPlan PlanAttention(const ForwardBatch& batch, uint32_t max_rows);

}  // namespace kvern::model
