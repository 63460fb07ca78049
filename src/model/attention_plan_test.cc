#include "model/attention_plan.h"

#include <gtest/gtest.h>

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

// Every row of the batch is in one run, at its position; tiles are within bounds and hold the runs
// in order, and only slices of one group meet chunks together.
void CheckPlan(const ForwardBatch& batch, uint32_t max_rows) {
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

  const AttentionPlan plan = PlanAttention(batch, max_rows);
  std::vector<int> times_seen(slice_of_row.size());
  uint32_t next_run = 0;
  for (const QueryTile& tile : plan.tiles) {
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
      }
      const auto group = group_of_slice.find(run.slice);
      EXPECT_EQ(tile.common_chunks,
                group == group_of_slice.end() ? 0 : batch.shared[group->second].num_chunks);
      if (runs.size() > 1) {
        EXPECT_EQ(group->second, group_of_slice.at(runs[0].slice));
      }
    }
    EXPECT_EQ(tile.num_rows, num_rows);
    EXPECT_LE(num_rows, max_rows);
  }
  EXPECT_EQ(next_run, plan.runs.size());
  for (const int times : times_seen) EXPECT_EQ(times, 1);
}

TEST(AttentionPlanTest, SlicesAloneAreCutIntoTiles) {
  Batch batch;
  batch.AddSlice(10, 5);
  batch.AddSlice(1, 0);
  const AttentionPlan plan = PlanAttention(batch.Get(), 4);
  ASSERT_EQ(plan.tiles.size(), 4u);
  EXPECT_EQ(plan.tiles[2].num_rows, 2u);
  EXPECT_EQ(plan.runs[2].first_position, 13u);
  EXPECT_EQ(plan.runs[3].first_row, 10u);
  CheckPlan(batch.Get(), 4);
}

TEST(AttentionPlanTest, GroupsFillTilesTogether) {
  Batch batch;
  for (int i = 0; i < 6; ++i) batch.AddSlice(1, 256);
  batch.groups = {{0, 2, 3, 4, 5}};
  ForwardBatch whole = batch.Get();
  batch.shared[0].num_chunks = 2;
  const AttentionPlan plan = PlanAttention(whole, 4);
  ASSERT_EQ(plan.tiles.size(), 3u);
  EXPECT_EQ(plan.tiles[0].num_runs, 4u);
  EXPECT_EQ(plan.tiles[0].common_chunks, 2u);
  EXPECT_EQ(plan.tiles[1].num_runs, 1u);
  EXPECT_EQ(plan.RunsOf(plan.tiles[1])[0].slice, 5u);
  EXPECT_EQ(plan.tiles[2].common_chunks, 0u);
  CheckPlan(whole, 4);
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
    CheckPlan(whole, static_cast<uint32_t>(1 + random.Below(8)));
  }
}

TEST(AttentionPlanTest, NothingIsPlannedForNothing) {
  EXPECT_TRUE(PlanAttention({}, 4).tiles.empty());
}

}  // namespace
}  // namespace kvern::model
