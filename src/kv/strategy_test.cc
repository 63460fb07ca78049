// Conformance of every row of the table: same view, exact bytes, contents kept.
#include "kv/strategy.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kv/test_support.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = 192;
constexpr size_t kMaxTokens = 150;

std::byte* BlockAt(const SequenceCache& cache, size_t position) {
  return cache.View().blocks[position / kBlockTokens];
}

class StrategyTest : public testing::TestWithParam<Strategy> {
 protected:
  static std::vector<GroupSpec> Groups() {
    GroupSpec group;
    group.block_bytes = kBlockBytes;
    return {group};
  }

  std::unique_ptr<SequenceCache> Make() {
    CacheOptions options;
    options.pool = &pool_;
    options.max_tokens = kMaxTokens;
    options.on_event = [this](const CacheEvent& event) { events_.push_back(event); };
    return GetParam().make(std::move(options));
  }

  // What the store and the pool say that all caches together hold.
  size_t BytesReallyHeld() const {
    const PoolStats stats = pool_.stats();
    return store_.bytes_held() - stats.mapped_bytes + stats.bytes.active;
  }

  size_t SumOfEvents(CacheEvent::Kind kind) const {
    size_t bytes = 0;
    for (const CacheEvent& event : events_) bytes += event.kind == kind ? event.bytes : 0;
    return bytes;
  }

  TestStore store_{kBlockBytes};
  BlockPool pool_{&store_, 100 * kBlockBytes, Groups(), /*min_slab_bytes=*/4 * kBlockBytes};
  std::vector<CacheEvent> events_;
};

// Extends and writes rows, checking that new blocks are zeroed. False if it was refused.
bool TryAppend(SequenceCache& cache, std::vector<uint64_t>& rows, size_t num_tokens,
               uint64_t seed) {
  const size_t num_blocks = cache.View().num_blocks;
  if (!cache.Extend(num_tokens).ok()) return false;
  for (size_t i = num_blocks; i < cache.View().num_blocks; ++i) {
    EXPECT_TRUE(IsZero(cache.View().blocks[i], kBlockBytes));
  }
  for (size_t i = 0; i < num_tokens; ++i) {
    const size_t position = rows.size();
    rows.push_back(seed + i);
    WriteRow(BlockAt(cache, position), kBlockBytes, position, rows.back());
  }
  return true;
}

void Append(SequenceCache& cache, std::vector<uint64_t>& rows, size_t num_tokens, uint64_t seed) {
  ASSERT_TRUE(TryAppend(cache, rows, num_tokens, seed));
}

void ExpectRows(const SequenceCache& cache, const std::vector<uint64_t>& rows) {
  ASSERT_EQ(cache.length(), rows.size());
  ASSERT_EQ(cache.View().num_blocks, (rows.size() + 15) / 16);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(reinterpret_cast<uintptr_t>(BlockAt(cache, i)) % kBlockAlignment, 0u);
    ASSERT_TRUE(HasRow(BlockAt(cache, i), kBlockBytes, i, rows[i])) << i;
  }
}

TEST_P(StrategyTest, KeepsRowsAndCountsBytesExactly) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    events_.clear();
    auto cache = Make();
    EXPECT_EQ(BytesReallyHeld(), 0u);
    std::vector<uint64_t> rows;
    size_t peak_bytes = 0;
    for (int step = 0; step < 200; ++step) {
      if (random() % 6 == 0) {
        rows.resize(random() % 3 == 0 ? 0 : random() % (rows.size() + 1));
        cache->Truncate(rows.size());
      } else {
        const size_t num_tokens = random() % 20;
        if (rows.size() + num_tokens > kMaxTokens) continue;
        Append(*cache, rows, num_tokens, random());
      }
      ExpectRows(*cache, rows);
      if (HasFatalFailure()) return;
      const CacheUsage usage = cache->usage();
      peak_bytes = std::max(peak_bytes, usage.bytes_allocated);
      ASSERT_EQ(usage.bytes_allocated, BytesReallyHeld());
      ASSERT_EQ(usage.bytes_used, rows.size() * kBlockBytes / kBlockTokens);
      ASSERT_LE(usage.bytes_used, usage.bytes_allocated);
      ASSERT_LE(peak_bytes, usage.peak_bytes);
      ASSERT_EQ(usage.bytes_copied, SumOfEvents(CacheEvent::Kind::kGrowCopy));
      ASSERT_EQ(usage.bytes_allocated,
                SumOfEvents(CacheEvent::Kind::kAllocate) - SumOfEvents(CacheEvent::Kind::kFree));
    }
    cache.reset();
    ASSERT_EQ(BytesReallyHeld(), 0u);
    ASSERT_EQ(SumOfEvents(CacheEvent::Kind::kAllocate), SumOfEvents(CacheEvent::Kind::kFree));
  }
}

TEST_P(StrategyTest, AForkIsIndependentFromThenOn) {
  auto cache = Make();
  std::vector<uint64_t> rows;
  Append(*cache, rows, 37, 1000);
  std::unique_ptr<SequenceCache> fork = std::move(cache->Fork()).value();
  std::vector<uint64_t> fork_rows = rows;
  ExpectRows(*fork, fork_rows);
  fork->Truncate(35);
  fork_rows.resize(35);
  Append(*fork, fork_rows, 30, 2000);
  Append(*cache, rows, 30, 3000);
  ExpectRows(*cache, rows);
  ExpectRows(*fork, fork_rows);
  EXPECT_GT(fork->usage().bytes_copied, 0u);
  EXPECT_EQ(cache->usage().bytes_copied + fork->usage().bytes_copied,
            SumOfEvents(CacheEvent::Kind::kGrowCopy) + SumOfEvents(CacheEvent::Kind::kCopyOnWrite));
  cache.reset();
  ExpectRows(*fork, fork_rows);
  EXPECT_EQ(fork->usage().bytes_allocated, BytesReallyHeld());
}

TEST_P(StrategyTest, RefusesWhatExceedsTheContextAndStaysUsable) {
  auto cache = Make();
  std::vector<uint64_t> rows;
  Append(*cache, rows, 140, 1);
  for (const size_t num_tokens : {size_t{11}, SIZE_MAX}) {
    const Status status = cache->Extend(num_tokens);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(status.error().message.find("the context holds 150"), std::string::npos);
  }
  Append(*cache, rows, 10, 2);
  ExpectRows(*cache, rows);
}

TEST_P(StrategyTest, ARefusalOfTheStoreChangesNothing) {
  for (size_t n = 0; n < 4; ++n) {
    auto cache = Make();
    std::vector<uint64_t> rows;
    store_.refuse_after = n;
    for (int step = 0; step < 5; ++step) {
      const size_t bytes_before = cache->usage().bytes_allocated;
      if (!TryAppend(*cache, rows, 25, n)) {
        EXPECT_EQ(cache->usage().bytes_allocated, bytes_before);
      }
      ExpectRows(*cache, rows);
      EXPECT_EQ(cache->usage().bytes_allocated, BytesReallyHeld());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrategyTest,
                         testing::ValuesIn(Strategies().begin(), Strategies().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Strategies, AreFoundByNameAndTheErrorListsThem) {
  for (const Strategy& strategy : Strategies()) {
    EXPECT_EQ(FindStrategy(strategy.name).value(), &strategy);
  }
  const auto unknown = FindStrategy("pagd");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "unknown KV strategy 'pagd': use one of paged, dynamic, static, none");
}

}  // namespace
}  // namespace kvern::kv
