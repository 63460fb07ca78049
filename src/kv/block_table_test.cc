// Tables against a model too simple to be wrong: each sequence is a vector of row contents. Every
// sequence must always read back what it wrote, whatever the others do.
#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "kv/test_support.h"

namespace kvern::kv {
namespace {

constexpr GroupId kGroup{0};
constexpr size_t kBlockBytes = 128;
constexpr size_t kPoolBlocks = 24;

BlockPool MakePool(TestStore* store, size_t num_blocks = kPoolBlocks) {
  GroupSpec group;
  group.block_bytes = kBlockBytes;
  return BlockPool(store, num_blocks * kBlockBytes, {group}, /*min_slab_bytes=*/4 * kBlockBytes);
}

std::byte* BlockAt(const BlockTable& table, size_t position) {
  return table.View().blocks[position / kBlockTokens];
}

// A table and what must be in it.
struct Sequence {
  BlockTable table;
  std::vector<uint64_t> rows;
  size_t committed = 0;
  size_t num_promised = 0;  // blocks
};

class TableFuzzer {
 public:
  explicit TableFuzzer(uint64_t seed)
      : random_(seed), store_(kBlockBytes), pool_(MakePool(&store_)) {}

  ~TableFuzzer() {
    sequences_.clear();
    for (const auto& [block, bytes] : published_) pool_.Unpublish(block);
  }

  void Step() {
    if (sequences_.size() < 2 || (sequences_.size() < 6 && random_() % 40 == 0)) {
      sequences_.push_back(Sequence{BlockTable(&pool_, kGroup), {}, 0, 0});
    }
    Sequence& sequence = sequences_[random_() % sequences_.size()];
    const size_t length = sequence.rows.size();
    switch (random_() % 16) {
      case 0:
      case 1:
        return Reserve(sequence, random_() % 40);
      case 2:
        return Truncate(sequence, random_() % (length + 1));
      case 3:
        return Truncate(sequence, length - std::min(length, random_() % 4));
      case 4:
        if (sequences_.size() < 6) Fork(sequence);
        return;
      case 5:
      case 6:
        sequence.committed += random_() % (length - sequence.committed + 1);
        return sequence.table.Commit(sequence.committed);
      case 7:
        return Publish(sequence);
      case 8:
      case 9:
        return Unpublish();
      case 10:
        if (random_() % 4 > 0) return;
        std::swap(sequence, sequences_.back());
        return sequences_.pop_back();
      default:
        return Extend(sequence, random_() % (random_() % 3 == 0 ? 40 : 3));
    }
  }

  void Check() const {
    pool_.CheckInvariants();
    std::map<BlockId, uint32_t> references;
    size_t num_promised = 0;
    for (const Sequence& sequence : sequences_) {
      sequence.table.CheckInvariants();
      ASSERT_EQ(sequence.table.length(), sequence.rows.size());
      ASSERT_EQ(sequence.table.committed(), sequence.committed);
      for (size_t i = 0; i < sequence.rows.size(); ++i) {
        ASSERT_TRUE(HasRow(BlockAt(sequence.table, i), kBlockBytes, i, sequence.rows[i])) << i;
      }
      for (const BlockId block : sequence.table.blocks()) ++references[block];
      num_promised += sequence.num_promised;
    }
    size_t num_cached = 0;
    for (const auto& [block, bytes] : published_) {
      num_cached += !references.contains(block);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), pool_.Address(block)));
    }
    for (const auto& [block, count] : references) {
      ASSERT_EQ(pool_.num_references(block), count);
    }
    const StateCounts counts = pool_.stats().blocks[0];
    ASSERT_EQ(counts.active, references.size());
    ASSERT_EQ(counts.cached, num_cached);
    ASSERT_EQ(counts.reserved, num_promised);
    ASSERT_EQ(counts.Sum(), kPoolBlocks);
  }

  size_t num_rows_copied() const { return num_rows_copied_; }

 private:
  // What writing `num_tokens` more takes, by the rules and not by the table.
  size_t BlocksNeeded(const Sequence& sequence, size_t num_tokens) const {
    if (num_tokens == 0) return 0;
    const size_t length = sequence.rows.size();
    const size_t num_new = (length + num_tokens + 15) / 16 - (length + 15) / 16;
    if (length % 16 == 0) return num_new;
    const BlockId last = sequence.table.blocks().back();
    size_t num_holders = 0;
    for (const Sequence& other : sequences_) {
      for (const BlockId block : other.table.blocks()) num_holders += block == last;
    }
    return num_new + (num_holders > 1 || published_.contains(last));
  }

  void Reserve(Sequence& sequence, size_t num_tokens) {
    const size_t num_needed = BlocksNeeded(sequence, num_tokens);
    const size_t num_free = pool_.stats().blocks[0].free + sequence.num_promised;
    const bool succeeded = sequence.table.Reserve(num_tokens).ok();
    ASSERT_EQ(succeeded, num_needed <= num_free);
    if (succeeded) sequence.num_promised = num_needed;  // else the earlier promise stays
    // Most of the time, take the step that was reserved for, after others may have taken the rest.
    if (!succeeded || random_() % 4 == 0) return;
    Sequence& other = sequences_[random_() % sequences_.size()];
    if (&other != &sequence) Extend(other, random_() % 100);
    const size_t num_promised = sequence.num_promised;
    ASSERT_LE(BlocksNeeded(sequence, num_tokens), num_promised);
    ASSERT_TRUE(Extend(sequence, num_tokens, /*must_succeed=*/true));
  }

  void Extend(Sequence& sequence, size_t num_tokens) { Extend(sequence, num_tokens, false); }

  bool Extend(Sequence& sequence, size_t num_tokens, bool must_succeed) {
    const size_t num_needed = BlocksNeeded(sequence, num_tokens);
    const size_t num_free = pool_.stats().blocks[0].free + sequence.num_promised;
    const size_t num_blocks_before = sequence.table.blocks().size();
    const size_t num_copied_before = sequence.table.num_rows_copied();
    const bool succeeded = sequence.table.Extend(num_tokens).ok();
    EXPECT_EQ(succeeded, num_needed <= num_free);
    EXPECT_TRUE(succeeded || !must_succeed);
    if (!succeeded) return false;
    sequence.num_promised = 0;
    num_rows_copied_ += sequence.table.num_rows_copied() - num_copied_before;
    for (size_t i = num_blocks_before; i < sequence.table.blocks().size(); ++i) {
      EXPECT_TRUE(IsZero(sequence.table.View().blocks[i], kBlockBytes));
    }
    for (size_t i = 0; i < num_tokens; ++i) {
      const size_t position = sequence.rows.size();
      EXPECT_TRUE(pool_.is_writable(sequence.table.blocks()[position / kBlockTokens]));
      sequence.rows.push_back(random_());
      WriteRow(BlockAt(sequence.table, position), kBlockBytes, position, sequence.rows.back());
    }
    return true;
  }

  void Truncate(Sequence& sequence, size_t length) {
    sequence.table.Truncate(length);
    sequence.rows.resize(length);
    sequence.committed = std::min(sequence.committed, length);
    sequence.num_promised = 0;
  }

  void Fork(Sequence& sequence) {
    sequence.num_promised = 0;
    Sequence fork{sequence.table.Fork(), sequence.rows, sequence.committed, 0};
    sequences_.push_back(std::move(fork));
  }

  void Publish(Sequence& sequence) {
    if (sequence.num_promised > 0) return;
    const size_t num_full = sequence.committed / kBlockTokens;
    if (num_full == 0) return;
    const BlockId block = sequence.table.blocks()[random_() % num_full];
    if (published_.contains(block)) return;
    pool_.Publish(block);
    const std::byte* const bytes = pool_.Address(block);
    published_[block] = {bytes, bytes + kBlockBytes};
  }

  void Unpublish() {
    if (published_.empty()) return;
    const auto entry = std::next(published_.begin(), random_() % published_.size());
    pool_.Unpublish(entry->first);
    published_.erase(entry);
  }

  std::mt19937_64 random_;
  TestStore store_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::map<BlockId, std::vector<std::byte>> published_;  // with the bytes that must not change
  size_t num_rows_copied_ = 0;
};

TEST(BlockTable, RandomSequencesReadBackWhatTheyWrote) {
  size_t num_rows_copied = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TableFuzzer fuzzer(seed);
    for (int step = 0; step < 1000; ++step) {
      fuzzer.Step();
      fuzzer.Check();
      if (testing::Test::HasFailure()) return;
    }
    num_rows_copied += fuzzer.num_rows_copied();
  }
  EXPECT_GT(num_rows_copied, 1000u);  // copy on write was really exercised
}

TEST(BlockTable, ARejectedDraftNeverTouchesWhatAForkReads) {
  TestStore store(kBlockBytes);
  BlockPool pool = MakePool(&store);
  BlockTable table(&pool, kGroup);
  ASSERT_TRUE(table.Extend(20).ok());
  for (size_t i = 0; i < 20; ++i) WriteRow(BlockAt(table, i), kBlockBytes, i, i);
  BlockTable fork = table.Fork();
  EXPECT_EQ(pool.stats().blocks[0].active, 2u);
  table.Truncate(18);
  ASSERT_TRUE(table.Extend(1).ok());
  WriteRow(BlockAt(table, 18), kBlockBytes, 18, 1000);
  EXPECT_EQ(table.num_rows_copied(), 2u);
  EXPECT_EQ(pool.stats().blocks[0].active, 3u);
  EXPECT_EQ(BlockAt(table, 0), BlockAt(fork, 0));
  EXPECT_NE(BlockAt(table, 18), BlockAt(fork, 18));
  EXPECT_TRUE(HasRow(BlockAt(fork, 18), kBlockBytes, 18, 18));
  EXPECT_TRUE(HasRow(BlockAt(table, 17), kBlockBytes, 17, 17));
}

TEST(BlockTable, CopyOnWriteUnderExhaustionIsRefusedAndChangesNothing) {
  TestStore store(kBlockBytes);
  BlockPool pool = MakePool(&store, /*num_blocks=*/2);
  BlockTable table(&pool, kGroup);
  ASSERT_TRUE(table.Extend(20).ok());
  WriteRow(BlockAt(table, 19), kBlockBytes, 19, 7);
  BlockTable fork = table.Fork();
  for (BlockTable* writer : {&table, &fork}) {
    EXPECT_EQ(writer->Reserve(1).error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(writer->Extend(1).error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(writer->length(), 20u);
  }
  fork.Release();
  ASSERT_TRUE(table.Extend(1).ok());
  EXPECT_TRUE(HasRow(BlockAt(table, 19), kBlockBytes, 19, 7));
  EXPECT_EQ(table.num_rows_copied(), 0u);
}

TEST(BlockTable, ARefusalAtAnyAllocationLeavesTheTableAsItWas) {
  bool was_refused = true;
  for (size_t n = 0; was_refused; ++n) {
    TestStore store(kBlockBytes);
    BlockPool pool = MakePool(&store);
    store.refuse_after = n;
    BlockTable table(&pool, kGroup);
    for (const size_t num_tokens : {10, 100, 1, 200}) {
      const size_t length = table.length();
      const Status status = table.Extend(num_tokens);
      EXPECT_EQ(table.length(), length + (status.ok() ? num_tokens : 0));
      table.CheckInvariants();
      pool.CheckInvariants();
      EXPECT_EQ(pool.stats().blocks[0].active, table.blocks().size());
      EXPECT_EQ(pool.stats().blocks[0].reserved, 0u);
    }
    was_refused = store.num_refused > 0;
    ASSERT_LT(n, 100u);
  }
}

}  // namespace
}  // namespace kvern::kv
