#include "model/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"

namespace kvern::model {
namespace {

struct Batch {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<ForwardSlice> slices;
  std::vector<std::vector<uint32_t>> groups;
  std::vector<SharedChunks> shared;

  void AddSlice(size_t num_tokens, uint32_t first_position) {
    tokens.emplace_back(num_tokens);
    slices.push_back({{}, first_position, {}, 0});
  }
  ForwardBatch Get() {
    for (size_t i = 0; i < slices.size(); ++i) slices[i].tokens = tokens[i];
    shared.resize(groups.size());
    for (size_t i = 0; i < groups.size(); ++i) shared[i].slices = groups[i];
    return {slices, shared};
  }
};

constexpr AttentionShape kShape = {
    .max_rows = 4, .num_heads = 3, .group_size = 2, .num_threads = 1, .max_slots = 0};

AttentionPlan Plan(const ForwardBatch& batch, const AttentionShape& shape) {
  AttentionPlan plan;
  PlanAttention(batch, shape, plan);
  return plan;
}

// Every row meets each chunk up to its own once, in ascending order.
void CheckSteps(const AttentionPlan& plan, const QueryTile& tile, uint32_t num_heads) {
  std::vector<uint32_t> positions;
  std::vector<uint32_t> next_chunk(tile.num_rows);
  for (const QueryRun& run : plan.RunsOf(tile)) {
    for (uint32_t r = 0; r < run.num_rows; ++r) positions.push_back(run.first_position + r);
  }
  ASSERT_EQ(tile.num_units % num_heads, 0u);
  for (uint32_t step = 0; step < tile.num_units / num_heads; ++step) {
    const TileStep s = plan.StepOf(tile, step);
    uint32_t last_position = 0;
    for (uint32_t row = s.first_row; row < s.first_row + s.num_rows; ++row) {
      EXPECT_EQ(next_chunk.at(row)++, s.chunk);
      last_position = std::max(last_position, positions[row]);
    }
    EXPECT_LE(s.chunk * kChunkTokens, last_position);
    EXPECT_EQ(s.num_blocks,
              std::min(kChunkBlocks, last_position / kBlockTokens + 1 - s.chunk * kChunkBlocks));
  }
  for (uint32_t row = 0; row < tile.num_rows; ++row) {
    EXPECT_GT(next_chunk[row] * kChunkTokens, positions[row]);
  }
}

// Threads share all units in order; what a thread does not begin has slots of its own.
void CheckBounds(const AttentionPlan& plan, const AttentionShape& shape) {
  ASSERT_EQ(plan.bounds.size(), shape.num_threads + 1u);
  std::vector<uint32_t> units_done(plan.tiles.size());
  size_t num_slots = 0;
  for (uint32_t thread = 0; thread < shape.num_threads; ++thread) {
    const UnitPosition from = plan.bounds[thread], to = plan.bounds[thread + 1];
    for (uint32_t i = from.tile; i < plan.tiles.size() && i <= to.tile; ++i) {
      const QueryTile& tile = plan.tiles[i];
      const uint32_t begin = i == from.tile ? from.unit : 0;
      const uint32_t end = i == to.tile ? to.unit : tile.num_units;
      if (begin >= end) continue;
      EXPECT_EQ(units_done[i], begin);
      units_done[i] = end;
      if (begin == 0) {
        EXPECT_EQ(tile.num_merged_units, end);
        if (end < tile.num_units) {
          EXPECT_EQ(tile.owner, thread);
        }
      }
    }
  }
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const QueryTile& tile = plan.tiles[i];
    EXPECT_EQ(units_done[i], tile.num_units);
    if (tile.num_merged_units == tile.num_units) continue;
    EXPECT_EQ(tile.first_slot, num_slots);
    for (uint32_t unit = tile.num_merged_units; unit < tile.num_units; ++unit) {
      EXPECT_EQ(plan.SlotOf(tile, unit, shape.num_heads, shape.group_size), num_slots);
      num_slots += size_t{plan.StepOf(tile, unit / shape.num_heads).num_rows} * shape.group_size;
    }
  }
  EXPECT_LE(num_slots, shape.max_slots);
}

// Every row of the batch is in one run, at its position; tiles are within bounds and hold the runs
// in order, and only slices of one group meet chunks together.
void CheckPlan(const ForwardBatch& batch, const AttentionShape& shape) {
  std::vector<uint32_t> slice_of_row, position_of_row;
  for (uint32_t i = 0; i < batch.slices.size(); ++i) {
    for (uint32_t t = 0; t < batch.slices[i].tokens.size(); ++t) {
      slice_of_row.push_back(i);
      position_of_row.push_back(batch.slices[i].first_position + t);
    }
  }
  std::map<uint32_t, size_t> group_of_slice;
  for (size_t g = 0; g < batch.shared.size(); ++g) {
    for (const uint32_t slice : batch.shared[g].slices) group_of_slice[slice] = g;
  }

  const AttentionPlan plan = Plan(batch, shape);
  CheckBounds(plan, shape);
  std::vector<int> times_seen(slice_of_row.size());
  uint32_t next_run = 0;
  for (const QueryTile& tile : plan.tiles) {
    CheckSteps(plan, tile, shape.num_heads);
    EXPECT_EQ(tile.first_run, next_run);
    next_run += tile.num_runs;
    uint32_t num_rows = 0;
    const auto runs = plan.RunsOf(tile);
    ASSERT_FALSE(runs.empty());
    for (const QueryRun& run : runs) {
      ASSERT_GT(run.num_rows, 0u);
      num_rows += run.num_rows;
      for (uint32_t r = 0; r < run.num_rows; ++r) {
        ++times_seen.at(run.first_row + r);
        EXPECT_EQ(slice_of_row[run.first_row + r], run.slice);
        EXPECT_EQ(position_of_row[run.first_row + r], run.first_position + r);
        EXPECT_EQ(&plan.tiles[plan.tile_of_row.at(run.first_row + r)], &tile);
      }
      const auto group = group_of_slice.find(run.slice);
      EXPECT_EQ(tile.common_chunks,
                group == group_of_slice.end() ? 0 : batch.shared[group->second].num_chunks);
      if (runs.size() > 1) {
        EXPECT_EQ(group->second, group_of_slice.at(runs[0].slice));
      }
    }
    EXPECT_EQ(tile.num_rows, num_rows);
    EXPECT_LE(num_rows, shape.max_rows);
  }
  EXPECT_EQ(next_run, plan.runs.size());
  for (const int times : times_seen) EXPECT_EQ(times, 1);
}

TEST(AttentionPlanTest, SlicesAloneAreCutIntoTiles) {
  Batch batch;
  batch.AddSlice(10, 5);
  batch.AddSlice(1, 0);
  const AttentionPlan plan = Plan(batch.Get(), kShape);
  ASSERT_EQ(plan.tiles.size(), 4u);
  EXPECT_EQ(plan.tiles[2].num_rows, 2u);
  EXPECT_EQ(plan.runs[2].first_position, 13u);
  EXPECT_EQ(plan.runs[3].first_row, 10u);
  CheckPlan(batch.Get(), kShape);
}

TEST(AttentionPlanTest, GroupsFillTilesTogether) {
  Batch batch;
  for (int i = 0; i < 6; ++i) batch.AddSlice(1, 256);
  batch.groups = {{0, 2, 3, 4, 5}};
  ForwardBatch whole = batch.Get();
  batch.shared[0].num_chunks = 2;
  const AttentionPlan plan = Plan(whole, kShape);
  ASSERT_EQ(plan.tiles.size(), 3u);
  EXPECT_EQ(plan.tiles[0].num_runs, 4u);
  EXPECT_EQ(plan.tiles[0].common_chunks, 2u);
  EXPECT_EQ(plan.tiles[1].num_runs, 1u);
  EXPECT_EQ(plan.RunsOf(plan.tiles[1])[0].slice, 5u);
  EXPECT_EQ(plan.tiles[2].common_chunks, 0u);
  CheckPlan(whole, kShape);
}

TEST(AttentionPlanTest, RandomBatches) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    Batch batch;
    batch.groups.resize(random.Below(3));
    const auto num_slices = static_cast<uint32_t>(1 + random.Below(9));
    for (uint32_t i = 0; i < num_slices; ++i) {
      batch.AddSlice(1 + random.Below(12), static_cast<uint32_t>(512 + random.Below(100)));
      const size_t group = random.Below(batch.groups.size() + 1);
      if (group < batch.groups.size()) batch.groups[group].push_back(i);
    }
    const ForwardBatch whole = batch.Get();
    for (SharedChunks& shared : batch.shared) {
      shared.num_chunks = static_cast<uint32_t>(random.Below(4));
    }
    AttentionShape shape = {.max_rows = static_cast<uint32_t>(1 + random.Below(8)),
                            .num_heads = static_cast<uint32_t>(1 + random.Below(4)),
                            .group_size = static_cast<uint32_t>(1 + random.Below(4)),
                            .num_threads = static_cast<uint32_t>(1 + random.Below(6)),
                            .max_slots = random.Below(500)};
    CheckPlan(whole, shape);
    shape.max_slots = 100'000;
    CheckPlan(whole, shape);
  }
}

// With slots enough, no thread has much more than its share.
TEST(AttentionPlanTest, OneLongSequenceIsShared) {
  Batch batch;
  batch.AddSlice(1, 4095);
  AttentionShape shape = kShape;
  shape.num_threads = 4;
  shape.max_slots = 1000;
  const AttentionPlan plan = Plan(batch.Get(), shape);
  ASSERT_EQ(plan.tiles.size(), 1u);
  for (uint32_t thread = 0; thread < 4; ++thread) {
    EXPECT_EQ(plan.bounds[thread].unit, 24 * thread);
  }
}

TEST(AttentionPlanTest, NothingIsPlannedForNothing) { EXPECT_TRUE(Plan({}, kShape).tiles.empty()); }

}  // namespace
}  // namespace kvern::model
