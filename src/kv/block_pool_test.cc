// The pool against a model too simple to be wrong: a map from block to (references, content).
#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "kv/test_support.h"

namespace kvern::kv {
namespace {

constexpr GroupId kGroup{0};

std::vector<GroupSpec> Groups(std::initializer_list<size_t> block_bytes) {
  std::vector<GroupSpec> groups;
  for (const size_t bytes : block_bytes) groups.emplace_back().block_bytes = bytes;
  return groups;
}

struct Expected {
  size_t group;
  uint32_t num_references = 1;
  bool is_published = false;
  std::byte fill{0};
};

class PoolFuzzer {
 public:
  PoolFuzzer(uint64_t seed, std::vector<GroupSpec> groups)
      : random_(seed),
        store_(groups[0].block_bytes),
        pool_(&store_, /*budget_bytes=*/12000, groups, /*min_slab_bytes=*/1024),
        num_promised_(groups.size()) {}

  ~PoolFuzzer() {
    for (const auto& [block, expected] : model_) {
      for (uint32_t i = 0; i < expected.num_references; ++i) pool_.Release(block);
    }
  }

  void Step() {
    const size_t group = random_() % pool_.num_groups();
    if (random_() % 50 == 0) store_.refuse_after = random_() % 2;
    switch (random_() % 9) {
      case 0:
        return Reserve(group, random_() % 6);
      case 1:
        return Unreserve(group);
      case 2:
      case 3:
        if (num_promised_[group] == 0) return Allocate(group);
        --num_promised_[group];
        return Fill(pool_.Take(GroupId(group)), group);
      case 4:
        return Allocate(group);
      case 5:
        return Retain();
      case 6:
        return Publish();
      default:
        return Release();
    }
  }

  void Check() const {
    pool_.CheckInvariants();
    const PoolStats stats = pool_.stats();
    ASSERT_EQ(stats.bytes.Sum(), pool_.budget_bytes());
    ASSERT_EQ(stats.mapped_bytes, store_.bytes_held());
    size_t active_bytes = 0, cached_bytes = 0;
    for (const auto& [block, expected] : model_) {
      const size_t bytes = BlockBytes(expected.group);
      (expected.num_references > 0 ? active_bytes : cached_bytes) += bytes;
      ASSERT_EQ(pool_.num_references(block), expected.num_references);
      ASSERT_EQ(pool_.is_published(block), expected.is_published);
      ASSERT_TRUE(IsFilled(pool_.Address(block), bytes, expected.fill));
    }
    ASSERT_EQ(stats.bytes.active, active_bytes);
    ASSERT_EQ(stats.bytes.cached, cached_bytes);
    for (size_t i = 0; i < num_promised_.size(); ++i) {
      ASSERT_EQ(stats.blocks[i].reserved, num_promised_[i]);
    }
    if (num_promised_.size() == 1) {
      ASSERT_EQ(stats.blocks[0].Sum(), pool_.num_blocks(kGroup));
    }
  }

 private:
  size_t BlockBytes(size_t group) const { return pool_.group(GroupId(group)).block_bytes; }

  // An entry that satisfies `is_wanted`, or end().
  template <typename Predicate>
  std::map<BlockId, Expected>::iterator Find(Predicate is_wanted) {
    if (model_.empty()) return model_.end();
    const auto start = std::next(model_.begin(), random_() % model_.size());
    const auto found = std::find_if(start, model_.end(), is_wanted);
    return found != model_.end() ? found : std::find_if(model_.begin(), model_.end(), is_wanted);
  }

  void Reserve(size_t group, size_t num_blocks) {
    const size_t num_free = pool_.stats().blocks[group].free;
    const size_t num_refused = store_.num_refused;
    const bool succeeded = pool_.Reserve(GroupId(group), num_blocks).ok();
    const bool was_refused = store_.num_refused > num_refused;
    ASSERT_EQ(succeeded, num_blocks <= num_free && !was_refused);
    if (succeeded) num_promised_[group] += num_blocks;
  }

  void Unreserve(size_t group) {
    const size_t num_blocks = random_() % (num_promised_[group] + 1);
    pool_.Unreserve(GroupId(group), num_blocks);
    num_promised_[group] -= num_blocks;
  }

  void Allocate(size_t group) {
    const size_t num_free = pool_.stats().blocks[group].free;
    const size_t num_refused = store_.num_refused;
    const auto block = pool_.Allocate(GroupId(group));
    ASSERT_EQ(block.ok(), num_free > 0 && store_.num_refused == num_refused);
    if (block.ok()) Fill(*block, group);
  }

  void Fill(BlockId block, size_t group) {
    ASSERT_FALSE(model_.contains(block));
    ASSERT_TRUE(pool_.is_writable(block));
    ASSERT_TRUE(IsZero(pool_.Address(block), BlockBytes(group)));
    const auto fill = std::byte(random_() | 1);
    std::fill_n(pool_.Address(block), BlockBytes(group), fill);
    model_.emplace(block, Expected{.group = group, .fill = fill});
  }

  void Retain() {
    const auto entry = Find([](const auto&) { return true; });
    if (entry == model_.end()) return;
    pool_.Retain(entry->first);
    ++entry->second.num_references;
  }

  void Publish() {
    const auto entry =
        Find([](const auto& e) { return e.second.is_published || e.second.num_references > 0; });
    if (entry == model_.end()) return;
    auto& [block, expected] = *entry;
    expected.is_published ? pool_.Unpublish(block) : pool_.Publish(block);
    expected.is_published = !expected.is_published;
    if (expected.num_references == 0 && !expected.is_published) model_.erase(entry);
  }

  void Release() {
    const auto entry = Find([](const auto& e) { return e.second.num_references > 0; });
    if (entry == model_.end()) return;
    pool_.Release(entry->first);
    if (--entry->second.num_references == 0 && !entry->second.is_published) model_.erase(entry);
  }

  std::mt19937_64 random_;
  TestStore store_;
  BlockPool pool_;
  std::vector<size_t> num_promised_;
  std::map<BlockId, Expected> model_;
};

void RunRandomOperations(const std::vector<GroupSpec>& groups) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PoolFuzzer fuzzer(seed, groups);
    for (int step = 0; step < 1000; ++step) {
      fuzzer.Step();
      fuzzer.Check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(BlockPool, OneGroupMatchesTheModel) { RunRandomOperations(Groups({448})); }

TEST(BlockPool, SeveralGroupsMatchTheModel) { RunRandomOperations(Groups({192, 64, 320})); }

TEST(BlockPool, OneGroupUsesTheWholeBudgetAndMapsItOnlyWhenNeeded) {
  TestStore store(64);
  BlockPool pool(&store, /*budget_bytes=*/64 * 21 + 63, Groups({64}), /*min_slab_bytes=*/512);
  EXPECT_EQ(pool.num_blocks(kGroup), 21u);
  EXPECT_EQ(pool.budget_bytes(), 64u * 21);
  EXPECT_EQ(store.bytes_held(), 0u);
  std::vector<BlockId> blocks;
  for (size_t i = 0; i < 21; ++i) {
    auto block = pool.Allocate(kGroup);
    ASSERT_TRUE(block.ok());
    blocks.push_back(*block);
    EXPECT_EQ(store.bytes_held(), std::min<size_t>((i / 8 + 1) * 512, 64 * 21));
  }
  const auto none = pool.Allocate(kGroup);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(none.error().message.find("0 free of 21"), std::string::npos);
  for (const BlockId block : blocks) pool.Release(block);
  EXPECT_EQ(pool.stats().bytes.free, pool.budget_bytes());
}

TEST(BlockPool, AnIdleGroupsMemoryServesAnother) {
  TestStore store(64);
  BlockPool pool(&store, /*budget_bytes=*/8192, Groups({64, 256}), /*min_slab_bytes=*/2048);
  for (int round = 0; round < 3; ++round) {
    for (const GroupId group : {GroupId(0), GroupId(1)}) {
      std::vector<BlockId> blocks;
      for (size_t i = 0; i < pool.num_blocks(group); ++i) {
        auto block = pool.Allocate(group);
        ASSERT_TRUE(block.ok()) << block.error().message;
        blocks.push_back(*block);
      }
      EXPECT_EQ(pool.stats().bytes.active, pool.budget_bytes());
      for (const BlockId block : blocks) pool.Release(block);
    }
  }
  EXPECT_EQ(store.bytes_held(), pool.budget_bytes());
}

// ---- Waste between groups

// Two groups at random, until one is refused.
class Waste {
 public:
  explicit Waste(uint64_t seed)
      : random_(seed),
        store_(64),
        pool_(&store_, /*budget_bytes=*/16 * kSlabBytes, Groups({64, 192}), kSlabBytes) {}
  ~Waste() {
    for (auto& blocks : active_) pool_.Release(blocks);
    for (const BlockId block : cached_) pool_.Unpublish(block);
  }

  // Returns the group that was refused.
  GroupId FillUp() {
    for (;;) {
      const size_t group = random_() % 2;
      const size_t what = random_() % 8;
      if (what < 5) {
        const auto block = pool_.Allocate(GroupId(group));
        if (!block.ok()) return GroupId(group);
        std::fill_n(pool_.Address(*block), BlockBytes(group), Content(*block));
        active_[group].push_back(*block);
      } else if (!active_[group].empty()) {
        std::swap(active_[group][random_() % active_[group].size()], active_[group].back());
        const BlockId block = active_[group].back();
        active_[group].pop_back();
        if (what == 5) {
          pool_.Publish(block);
          cached_.insert(block);
        }
        pool_.Release(block);
      }
    }
  }

  // Most active blocks of a group become cached, and many of those free.
  void Thin(GroupId group) {
    auto& active = active_[static_cast<size_t>(group)];
    for (size_t left = active.size(); left > 0; --left) {
      if (random_() % 16 == 0) continue;
      std::swap(active[left - 1], active.back());
      if (random_() % 3 == 0) {
        pool_.Publish(active.back());
        cached_.insert(active.back());
      }
      pool_.Release(active.back());
      active.pop_back();
    }
  }

  void AllocateAll(GroupId group) {
    for (;;) {
      const auto block = pool_.Allocate(group);
      if (!block.ok()) return;
      std::fill_n(pool_.Address(*block), BlockBytes(static_cast<size_t>(group)), Content(*block));
      active_[static_cast<size_t>(group)].push_back(*block);
    }
  }

  // What the prefix cache does before it evicts. Returns the blocks moved.
  size_t MoveAllFor(GroupId wanting) {
    size_t num_moved = 0;
    while (const auto blocks = pool_.FindSpareSlab(wanting)) {
      for (const BlockId block : *blocks) {
        const size_t group = static_cast<size_t>(pool_.GroupIdOf(block));
        const std::byte content = *pool_.Address(block);
        const BlockId moved = pool_.Move(block);
        EXPECT_TRUE(IsFilled(pool_.Address(moved), BlockBytes(group), content));
        cached_.erase(block);
        cached_.insert(moved);
        ++num_moved;
      }
      pool_.CheckInvariants();
    }
    return num_moved;
  }

  // Free blocks of a group in slabs that hold no active block, and blocks of a slab.
  void ExpectBoundedWaste(GroupId group) const {
    const size_t per_slab = kSlabBytes / BlockBytes(static_cast<size_t>(group));
    std::map<const std::byte*, size_t> num_used, num_active;  // by slab
    const auto count = [&](BlockId block, bool is_active) {
      if (pool_.GroupIdOf(block) != group) return;
      const std::byte* const slab = SlabOf(pool_.Address(block));
      ++num_used[slab];
      num_active[slab] += is_active;
    };
    for (const auto& blocks : active_) {
      for (const BlockId block : blocks) count(block, true);
    }
    for (const BlockId block : cached_) count(block, false);
    size_t num_free = 0;
    for (const auto& [slab, used] : num_used) {
      if (num_active[slab] == 0) num_free += per_slab - used;
    }
    EXPECT_LT(num_free, per_slab);
  }

 private:
  static constexpr size_t kSlabBytes = 1536;

  size_t BlockBytes(size_t group) const { return pool_.group(GroupId(group)).block_bytes; }
  static std::byte Content(BlockId block) { return std::byte(static_cast<uint32_t>(block) | 1); }
  // The region that an address is in.
  const std::byte* SlabOf(const std::byte* address) const { return store_.RegionOf(address); }

  std::mt19937_64 random_;
  TestStore store_;
  BlockPool pool_;
  std::array<std::vector<BlockId>, 2> active_;
  std::set<BlockId> cached_;
};

TEST(BlockPool, WhenAGroupIsRefusedTheOthersHaveLessThanASlabFreeBesideTheirActiveBlocks) {
  size_t num_moved = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Waste waste(seed);
    const GroupId refused = waste.FillUp();
    const GroupId other = refused == GroupId(0) ? GroupId(1) : GroupId(0);
    waste.Thin(other);
    for (size_t moved = 1; moved > 0; num_moved += moved) {
      waste.AllocateAll(refused);
      moved = waste.MoveAllFor(refused);
    }
    waste.ExpectBoundedWaste(other);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_moved, 0u);
}

TEST(BlockPool, AFailedReserveChangesNothing) {
  for (size_t refused = 0; refused < 4; ++refused) {
    TestStore store(64);
    BlockPool pool(&store, /*budget_bytes=*/64 * 32, Groups({64}), /*min_slab_bytes=*/512);
    store.refuse_after = refused;
    ASSERT_FALSE(pool.Reserve(kGroup, 32).ok());
    pool.CheckInvariants();
    EXPECT_EQ(pool.stats().bytes.free, pool.budget_bytes());
    ASSERT_FALSE(pool.Reserve(kGroup, 33).ok());
    ASSERT_TRUE(pool.Reserve(kGroup, 32).ok());
    EXPECT_EQ(pool.stats().bytes.reserved, pool.budget_bytes());
    pool.Unreserve(kGroup, 32);
  }
}

TEST(BlockPool, AnyThreadSeesStatisticsThatSumToTheBudget) {
  TestStore store(64);
  BlockPool pool(&store, /*budget_bytes=*/4096, Groups({64}), /*min_slab_bytes=*/512);
  std::atomic<bool> is_done{false};
  std::atomic<size_t> num_wrong{0};
  std::thread reader([&] {
    while (!is_done.load()) {
      num_wrong += pool.stats().bytes.Sum() != pool.budget_bytes();
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < 300; ++round) {
    std::vector<BlockId> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(*pool.Allocate(kGroup));
    for (const BlockId block : blocks) pool.Release(block);
  }
  is_done = true;
  reader.join();
  EXPECT_EQ(num_wrong.load(), 0u);
}

TEST(BlockPoolDeathTest, MisuseAborts) {
  TestStore store(64);
  BlockPool pool(&store, /*budget_bytes=*/4096, Groups({64}), /*min_slab_bytes=*/512);
  const BlockId block = *pool.Allocate(kGroup);
  EXPECT_DEATH(pool.Take(kGroup), "promised >= ");
  EXPECT_DEATH(pool.Unpublish(block), "is_published");
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "num_references > 0");
  EXPECT_DEATH(pool.Retain(block), "num_references > 0");
}

}  // namespace
}  // namespace kvern::kv
