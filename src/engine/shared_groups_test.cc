// The groups found against every grouping there is, on small random tries; and the rules of N3.
#include "engine/shared_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace kvern::engine {
namespace {

using testing::ElementsAre;

// Slices over blocks that are named by numbers.
class Step {
 public:
  explicit Step(uint32_t num_views = 1) : num_views_(num_views) {}

  // With the same block numbers in every view.
  void Add(const std::vector<uint32_t>& blocks, uint32_t first_position) {
    Add(std::vector<std::vector<uint32_t>>(num_views_, blocks), first_position);
  }
  void Add(const std::vector<std::vector<uint32_t>>& blocks, uint32_t first_position) {
    for (const auto& numbers : blocks) {
      auto& pointers = blocks_.emplace_back();
      for (const uint32_t number : numbers) pointers.push_back(&memory_.at(number));
    }
    first_positions_.push_back(first_position);
  }

  std::vector<Slice> slices() {
    views_.clear();
    for (auto& blocks : blocks_) {
      views_.push_back({blocks.data(), static_cast<uint32_t>(blocks.size())});
    }
    std::vector<Slice> slices(first_positions_.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      slices[i].first_position = first_positions_[i];
      slices[i].views = std::span(views_).subspan(i * num_views_, num_views_);
    }
    return slices;
  }

 private:
  const uint32_t num_views_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(100'000);
  std::vector<std::vector<std::byte*>> blocks_;
  std::vector<uint32_t> first_positions_;
  std::vector<PagedView> views_;
};

// `chunks` chunks of blocks, chunk c made of the numbers from 8 · (chunks[c]) on.
std::vector<uint32_t> Blocks(const std::vector<uint32_t>& chunks) {
  std::vector<uint32_t> blocks;
  for (const uint32_t chunk : chunks) {
    for (uint32_t b = 0; b < kChunkBlocks; ++b) blocks.push_back(chunk * kChunkBlocks + b);
  }
  return blocks;
}

using Groups = std::vector<std::pair<std::vector<uint32_t>, uint32_t>>;

Groups Find(SharedGroups& finder, const std::vector<Slice>& slices) {
  std::vector<SharedPrefix> found(3);  // what was there goes
  finder.Find(slices, found);
  Groups groups;
  for (const SharedPrefix& group : found) {
    groups.emplace_back(std::vector<uint32_t>(group.slices.begin(), group.slices.end()),
                        group.num_chunks);
  }
  return groups;
}

Groups Find(Step& step) {
  SharedGroups finder;
  return Find(finder, step.slices());
}

bool SharesChunk(const Slice& a, const Slice& b, uint32_t chunk) {
  const uint32_t begin = chunk * kChunkBlocks;
  for (const Slice* slice : {&a, &b}) {
    if (slice->first_position < (chunk + 1) * kChunkTokens) return false;
  }
  for (size_t v = 0; v < a.views.size(); ++v) {
    if (!std::equal(a.views[v].blocks + begin, a.views[v].blocks + begin + kChunkBlocks,
                    b.views[v].blocks + begin)) {
      return false;
    }
  }
  return true;
}

// Chunk reads saved; fails the test if the groups break a rule.
uint32_t CheckedSaving(const std::vector<Slice>& slices, const Groups& groups) {
  uint32_t saving = 0;
  std::vector<bool> grouped(slices.size());
  uint32_t last_first = 0;
  for (const auto& [members, num_chunks] : groups) {
    EXPECT_GE(members.size(), 2u);
    EXPECT_GE(members[0], last_first);
    last_first = members[0];
    EXPECT_TRUE(std::ranges::is_sorted(members));
    for (const uint32_t member : members) {
      EXPECT_FALSE(grouped.at(member));
      grouped[member] = true;
      for (uint32_t chunk = 0; chunk < num_chunks; ++chunk) {
        EXPECT_TRUE(SharesChunk(slices[members[0]], slices[member], chunk));
      }
    }
    saving += static_cast<uint32_t>(members.size() - 1) * num_chunks;
  }
  return saving;
}

// The most that any grouping saves: tries every number of chunks for every slice.
class BruteForce {
 public:
  explicit BruteForce(const std::vector<Slice>& slices)
      : slices_(slices), num_chunks_(slices.size()) {}

  uint32_t Best(size_t slice = 0) {
    if (slice == slices_.size()) return Saving();
    uint32_t best = 0;
    for (num_chunks_[slice] = 0; num_chunks_[slice] * kChunkTokens <= slices_[slice].first_position;
         ++num_chunks_[slice]) {
      best = std::max(best, Best(slice + 1));
    }
    return best;
  }

 private:
  // Slices of as many, equal chunks are a group.
  uint32_t Saving() const {
    uint32_t saving = 0;
    for (size_t i = 0; i < slices_.size(); ++i) {
      for (size_t earlier = 0; earlier < i; ++earlier) {
        if (num_chunks_[i] != num_chunks_[earlier] || !Equal(i, earlier)) continue;
        saving += num_chunks_[i];
        break;
      }
    }
    return saving;
  }
  bool Equal(size_t a, size_t b) const {
    for (uint32_t chunk = 0; chunk < num_chunks_[a]; ++chunk) {
      if (!SharesChunk(slices_[a], slices_[b], chunk)) return false;
    }
    return true;
  }

  const std::vector<Slice>& slices_;
  std::vector<uint32_t> num_chunks_;
};

TEST(SharedGroupsTest, NothingSharedGivesNoGroups) {
  Step step;
  EXPECT_TRUE(Find(step).empty());
  step.Add(Blocks({1, 2}), 256);
  EXPECT_TRUE(Find(step).empty());
  step.Add(Blocks({3, 4}), 256);
  step.Add(Blocks({1, 5}), 100);  // its first chunk is not all before it
  step.Add(Blocks({}), 0);
  EXPECT_TRUE(Find(step).empty());
}

TEST(SharedGroupsTest, APromptIsSharedByAllItsSlices) {
  Step step;
  step.Add(Blocks({1, 2, 3, 10}), 400);
  step.Add(Blocks({9, 9, 9}), 384);
  step.Add(Blocks({1, 2, 3, 11}), 511);
  step.Add(Blocks({1, 2, 3, 12}), 384);
  EXPECT_THAT(Find(step), ElementsAre(std::pair(std::vector<uint32_t>{0, 2, 3}, 3u)));
}

TEST(SharedGroupsTest, AChunkIsSharedWholeOrNot) {
  Step step;
  auto a = Blocks({1, 2}), b = a;
  b.back() = 77;
  step.Add(a, 256);
  step.Add(b, 256);
  EXPECT_THAT(Find(step), ElementsAre(std::pair(std::vector<uint32_t>{0, 1}, 1u)));
}

// Eight that share 64 chunks leave those that share 16 with 24 others; neither a group of all nor
// one a branch saves as much.
TEST(SharedGroupsTest, ABranchMayLeaveItsParentsGroup) {
  std::vector<uint32_t> system(16), document(64);
  for (uint32_t c = 0; c < 64; ++c) document[c] = c < 16 ? system[c] = c : c;
  Step step;
  std::vector<uint32_t> all, own;
  for (uint32_t i = 0; i < 32; ++i) {
    const bool has_document = i % 4 == 1;
    (has_document ? own : all).push_back(i);
    auto chunks = has_document ? document : system;
    chunks.push_back(100 + i);
    step.Add(Blocks(chunks), static_cast<uint32_t>(chunks.size() - 1) * kChunkTokens + 5);
  }
  EXPECT_THAT(Find(step), ElementsAre(std::pair(all, 16u), std::pair(own, 64u)));
}

TEST(SharedGroupsTest, EveryLayerGroupMustShare) {
  Step step(2);
  step.Add({Blocks({1, 2, 3}), Blocks({4, 5, 6})}, 384);
  step.Add({Blocks({1, 2, 3}), Blocks({4, 7, 6})}, 384);
  step.Add({Blocks({1, 2, 3}), Blocks({8, 5, 6})}, 384);
  EXPECT_THAT(Find(step), ElementsAre(std::pair(std::vector<uint32_t>{0, 1}, 1u)));
}

// Each slice goes on from a random place of an earlier one's prefix, within a chunk or between two.
void AddRandomSlices(SplitMix64& random, Step& step) {
  const auto num_slices = static_cast<uint32_t>(2 + random.Below(5));
  std::vector<std::vector<uint32_t>> made = {{}};
  uint32_t num_blocks = 0;
  for (uint32_t i = 0; i < num_slices; ++i) {
    std::vector<uint32_t> blocks = made[random.Below(made.size())];
    if (random.Below(3) > 0) blocks.resize(random.Below(blocks.size() + 1));
    const size_t length = (1 + random.Below(4)) * kChunkBlocks + random.Below(2);
    while (blocks.size() < length) blocks.push_back(++num_blocks);
    made.push_back(blocks);
    const size_t last_position = std::min<size_t>(blocks.size(), 4 * kChunkBlocks) * kBlockTokens;
    const size_t first_position = random.Below(4) > 0 ? last_position : random.Below(last_position);
    step.Add(blocks, static_cast<uint32_t>(first_position));
  }
}

TEST(SharedGroupsTest, SavesAsMuchAsAnyGrouping) {
  SharedGroups finder;
  int num_with_several = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    Step step;
    AddRandomSlices(random, step);
    const auto slices = step.slices();
    const Groups groups = Find(finder, slices);
    ASSERT_EQ(CheckedSaving(slices, groups), BruteForce(slices).Best());
    ASSERT_EQ(Find(finder, slices), groups);
    if (groups.size() > 1) ++num_with_several;
  }
  EXPECT_GT(num_with_several, 50);
}

}  // namespace
}  // namespace kvern::engine
