// Recurrent states: one block for each position that a sequence can go back to.
#include "kv/state_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kv/test_support.h"

namespace kvern::kv {
namespace {

constexpr GroupId kGroup{0};
constexpr size_t kBlockBytes = 128;

class StateTableTest : public testing::Test {
 protected:
  static constexpr uint32_t kMaxRollback = 3;

  StateTableTest()
      : pool_(
            &store_, 40 * kBlockBytes,
            {{.kind = GroupKind::kState, .block_bytes = kBlockBytes, .max_rollback = kMaxRollback}},
            kBlockBytes) {}

  void TearDown() override {
    pool_.CheckInvariants();
    EXPECT_EQ(pool_.stats().bytes.free, pool_.budget_bytes());
  }

  StateTable Make() { return StateTable(&pool_, kGroup, {}, zero_); }

  // Fresh states, each of which says where it is of.
  void Extend(StateTable& table, size_t length, size_t num_tokens) {
    const size_t num_blocks = table.BlocksNeeded(num_tokens);
    ASSERT_TRUE(table.Promise(num_blocks).ok());
    table.Extend(num_tokens);
    const PagedView view = table.View();
    for (size_t back = 0; back < num_blocks; ++back) {
      std::byte* const block = view.blocks[view.num_blocks - 1 - back];
      ASSERT_TRUE(IsZero(block, kBlockBytes));
      WriteRow(block, kBlockBytes, 0, length + num_tokens - back);
    }
  }

  static bool IsAt(const StateTable& table, size_t position) {
    const PagedView view = table.View();
    return HasRow(view.blocks[view.num_blocks - 1], kBlockBytes, 0, position);
  }

  TestStore store_{kBlockBytes};
  BlockPool pool_;
  alignas(kBlockAlignment) std::byte zero_[kBlockBytes] = {};
};

TEST_F(StateTableTest, TheBeginningIsTheZeroBlock) {
  const StateTable table = Make();
  EXPECT_EQ(table.View().num_blocks, 1u);
  EXPECT_EQ(table.View().blocks[0], zero_);
  EXPECT_EQ(table.At(0), std::nullopt);
}

TEST_F(StateTableTest, APrefillChunkTakesNoMoreThanCanBeGoneBackTo) {
  StateTable table = Make();
  Extend(table, 0, 1000);
  EXPECT_LE(pool_.stats().blocks[0].active, kMaxRollback + 1);
  table.Commit(1000);
  EXPECT_TRUE(table.CanTruncate(1000));
  EXPECT_TRUE(table.CanTruncate(1000 - kMaxRollback));
  EXPECT_FALSE(table.CanTruncate(500));
  EXPECT_TRUE(table.CanTruncate(0));
  EXPECT_TRUE(IsAt(table, 1000));
}

TEST_F(StateTableTest, EveryLengthOfADraftCanBeGoneBackTo) {
  for (size_t accepted = 0; accepted <= kMaxRollback; ++accepted) {
    StateTable table = Make();
    Extend(table, 0, 20);
    table.Commit(20);
    Extend(table, 20, kMaxRollback);
    ASSERT_TRUE(table.CanTruncate(20 + accepted));
    table.Truncate(20 + accepted);
    EXPECT_TRUE(IsAt(table, 20 + accepted));
    table.Commit(20 + accepted);
    Extend(table, 20 + accepted, 1);
    EXPECT_TRUE(IsAt(table, 21 + accepted));
  }
}

TEST_F(StateTableTest, AForkReadsItsOwnHistory) {
  StateTable table = Make();
  Extend(table, 0, 8);
  StateTable fork = table.Fork();
  Extend(table, 8, 2);
  Extend(fork, 8, 1);
  table.Truncate(8);
  EXPECT_TRUE(IsAt(table, 8));
  EXPECT_TRUE(IsAt(fork, 9));
  table.Release();
  EXPECT_TRUE(fork.CanTruncate(8));
  fork.Truncate(8);
  EXPECT_TRUE(IsAt(fork, 8));
}

TEST_F(StateTableTest, AnAdoptedStateIsTheFirst) {
  const BlockId block = *pool_.Allocate(kGroup);
  WriteRow(pool_.Address(block), kBlockBytes, 0, 32);
  StateTable table = Make();
  table.Adopt(32, block);
  EXPECT_EQ(table.At(32), block);
  EXPECT_FALSE(table.CanTruncate(31));
  Extend(table, 32, 1);
  EXPECT_TRUE(IsAt(table, 33));
}

TEST_F(StateTableTest, AReplacedStateIsReadFromTheOtherBlock) {
  StateTable table = Make();
  Extend(table, 0, 16);
  table.Commit(16);
  const BlockId other = *pool_.Allocate(kGroup);
  WriteRow(pool_.Address(other), kBlockBytes, 0, 16);
  table.Replace(16, other);
  EXPECT_EQ(table.At(16), other);
  EXPECT_TRUE(IsAt(table, 16));
}

TEST_F(StateTableTest, ARefusalChangesNothing) {
  StateTable table = Make();
  Extend(table, 0, 8);
  store_.refuse_after = 0;
  EXPECT_EQ(table.Promise(4).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(table.num_promised(), 0u);
  EXPECT_TRUE(IsAt(table, 8));
  pool_.CheckInvariants();
}

// Against the positions that may be gone back to: those of the draft, and max_rollback before what
// is committed.
TEST_F(StateTableTest, RandomStepsCanAlwaysBeTakenBackAsFarAsPromised) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  StateTable table = Make();
  size_t length = 0, committed = 0, oldest = 0;
  for (int step = 0; step < 2000; ++step) {
    if (random() % 2 == 0) {
      const size_t num_tokens = 1 + random() % kMaxRollback;
      Extend(table, length, num_tokens);
      length += num_tokens;
    }
    if (random() % 2 == 0 || length - committed > 2 * kMaxRollback) {
      committed += random() % (length - committed + 1);
      if (length - committed > 2 * kMaxRollback) committed = length;
      table.Commit(committed);
      oldest = std::max(oldest, committed - std::min<size_t>(committed, kMaxRollback));
    }
    if (random() % 3 == 0 && length > oldest) {
      length = oldest + random() % (length - oldest + 1);
      ASSERT_TRUE(table.CanTruncate(length)) << length << " of " << committed;
      table.Truncate(length);
      committed = std::min(committed, length);
    }
    ASSERT_TRUE(length == 0 || IsAt(table, length));
    pool_.CheckInvariants();
  }
}

}  // namespace
}  // namespace kvern::kv
