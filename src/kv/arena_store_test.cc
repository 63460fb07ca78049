#include "kv/arena_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace kvern::kv {
namespace {

constexpr size_t kUnit = kBlockAlignment;

std::unique_ptr<ArenaStore> MakeArena(size_t num_units, ArenaFit fit = ArenaFit::kFirst) {
  return std::move(ArenaStore::Create(num_units * kUnit, fit)).value();
}

// One cell per unit; 0 is free. Too slow to be wrong.
class NaiveArena {
 public:
  explicit NaiveArena(size_t num_units) : owners_(num_units, 0) {}

  // First index and length of every run of free cells.
  std::vector<std::pair<size_t, size_t>> Holes() const {
    std::vector<std::pair<size_t, size_t>> holes;
    for (size_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i] != 0) continue;
      if (i == 0 || owners_[i - 1] != 0) holes.emplace_back(i, 0);
      ++holes.back().second;
    }
    return holes;
  }

  std::optional<size_t> Allocate(size_t num_units, ArenaFit fit, int owner) {
    std::optional<std::pair<size_t, size_t>> best;
    for (const auto& hole : Holes()) {
      if (hole.second < num_units) continue;
      if (!best || (fit == ArenaFit::kBest && hole.second < best->second)) best = hole;
    }
    if (!best) return std::nullopt;
    std::fill_n(owners_.begin() + static_cast<ptrdiff_t>(best->first), num_units, owner);
    return best->first;
  }

  void Free(int owner) { std::replace(owners_.begin(), owners_.end(), owner, 0); }

 private:
  std::vector<int> owners_;
};

class ArenaStoreTest : public testing::TestWithParam<ArenaFit> {};

TEST_P(ArenaStoreTest, PlacesEveryRegionWhereANaiveModelDoes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    const size_t num_units = 40 + random.Below(100);
    const auto arena = MakeArena(num_units, GetParam());
    NaiveArena model(num_units);
    const Region whole = arena->Allocate(num_units * kUnit).value();
    arena->Free(whole);
    struct Held {
      int owner;
      Region region;
    };
    std::vector<Held> held;
    for (int owner = 1; owner <= 300; ++owner) {
      if (!held.empty() && random.Below(5) < 2) {
        const size_t i = random.Below(held.size());
        arena->Free(held[i].region);
        model.Free(held[i].owner);
        held.erase(held.begin() + static_cast<ptrdiff_t>(i));
      } else {
        const size_t bytes = 1 + random.Below(12 * kUnit);
        const size_t units = (bytes + kUnit - 1) / kUnit;
        const auto expected = model.Allocate(units, GetParam(), owner);
        const auto region = arena->Allocate(bytes);
        ASSERT_EQ(region.ok(), expected.has_value());
        if (region.ok()) {
          ASSERT_EQ(region->size(), units * kUnit);
          ASSERT_EQ(region->data(), whole.data() + *expected * kUnit);
          held.push_back({owner, *region});
        } else {
          ASSERT_EQ(arena->stats().last_refused_bytes, bytes);
        }
      }
      arena->CheckInvariants();
      size_t free_units = 0, largest = 0;
      const auto holes = model.Holes();
      for (const auto& hole : holes) {
        free_units += hole.second;
        largest = std::max(largest, hole.second);
      }
      const ArenaStats stats = arena->stats();
      ASSERT_EQ(stats.free_bytes, free_units * kUnit);
      ASSERT_EQ(stats.largest_hole_bytes, largest * kUnit);
      ASSERT_EQ(stats.num_holes, holes.size());
      ASSERT_EQ(arena->bytes_held(), (num_units - free_units) * kUnit);
    }
    for (const Held& entry : held) arena->Free(entry.region);
    EXPECT_EQ(arena->stats().largest_hole_bytes, num_units * kUnit);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ArenaStoreTest, testing::Values(ArenaFit::kFirst, ArenaFit::kBest),
                         [](const auto& info) {
                           return std::string(info.param == ArenaFit::kFirst ? "first" : "best");
                         });

TEST(ArenaStore, ARefusalSaysWhatIsFreeAndTheLargestHole) {
  const auto arena = MakeArena(10);
  std::vector<Region> regions;
  for (int i = 0; i < 5; ++i) regions.push_back(arena->Allocate(2 * kUnit).value());
  arena->Free(regions[1]);
  arena->Free(regions[3]);
  for (const size_t bytes : {3 * kUnit, SIZE_MAX, SIZE_MAX - kUnit}) {
    const auto refused = arena->Allocate(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(refused.error().message.find("256 are free, the largest hole has 128"),
              std::string::npos)
        << refused.error().message;
  }
  EXPECT_EQ(arena->stats().num_refused, 3u);
  for (const int i : {0, 2, 4}) arena->Free(regions[static_cast<size_t>(i)]);
}

TEST(ArenaStore, CountsWhatItDoesNotDo) {
  const auto arena = MakeArena(size_t{1} << 34);  // 1 TiB
  const Region region = arena->Allocate(size_t{1} << 39).value();
  arena->Zero(region.data(), 1000);
  arena->Copy(region.data(), region.data() + 5000, 300);
  arena->Copy(region.data(), region.data() + 5000, 40);
  arena->CopyRows(GroupId{0}, region.data(), region.data() + 5000, 7);
  const ArenaStats stats = arena->stats();
  EXPECT_EQ(stats.bytes_zeroed, 1000u);
  EXPECT_EQ(stats.bytes_copied, 340u);
  EXPECT_EQ(stats.rows_copied, 7u);
  arena->Free(region);
}

TEST(ArenaStore, ABudgetBeyondTheAddressSpaceIsAnError) {
  const auto arena = ArenaStore::Create(SIZE_MAX / 2);
  ASSERT_FALSE(arena.ok());
  EXPECT_NE(arena.error().message.find("use a smaller budget"), std::string::npos);
}

}  // namespace
}  // namespace kvern::kv
