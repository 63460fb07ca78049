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
  std::unique_ptr<KvCache> MakeKvCache() {
    KvCacheOptions options;
    options.groups.emplace_back().block_bytes = kBlockBytes;
    options.budget_bytes = 100 * kBlockBytes;
    options.min_slab_bytes = 4 * kBlockBytes;
    return KvCache::Make(std::move(options), &store_).value();
  }

  std::unique_ptr<SequenceCache> Make() {
    CacheOptions options;
    options.cache = kv_cache_.get();
    options.store = &store_;
    options.ns = kv_cache_->OpenNamespace({}).value();
    options.max_tokens = kMaxTokens;
    options.on_event = [this](const CacheEvent& event) { events_.push_back(event); };
    return GetParam().make(std::move(options));
  }

  // What the store or the KV cache says that all sequences together hold.
  size_t BytesReallyHeld() const {
    const KvStats stats = kv_cache_->stats();
    const bool hands_out_blocks = stats.peak_bytes.active > 0;
    return hands_out_blocks ? stats.bytes.active : store_.bytes_held();
  }

  size_t SumOfEvents(CacheEvent::Kind kind) const {
    size_t bytes = 0;
    for (const CacheEvent& event : events_) bytes += event.kind == kind ? event.bytes : 0;
    return bytes;
  }

  TestStore store_{kBlockBytes};
  std::unique_ptr<KvCache> kv_cache_ = MakeKvCache();
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

std::vector<TokenId> Text(size_t num_tokens, uint32_t first) {
  std::vector<TokenId> tokens(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) tokens[i] = TokenId(first + static_cast<uint32_t>(i));
  return tokens;
}

// What row `position` of a text holds: a function of the tokens up to it, as K/V are.
uint64_t RowOf(std::span<const TokenId> text, size_t position) {
  uint64_t row = 1;
  for (const TokenId token : text.first(position + 1)) {
    row = row * 1000003 + static_cast<uint32_t>(token);
  }
  return row;
}

// Begins `text` and computes what is not kept, in steps of `chunk`. Returns the rows kept.
size_t RunText(SequenceCache& cache, std::span<const TokenId> text, size_t max_kept, size_t chunk) {
  const size_t num_kept = cache.Begin(text, max_kept).value();
  EXPECT_EQ(cache.length(), num_kept);
  while (cache.length() < text.size()) {
    const size_t first = cache.length();
    const size_t count = std::min(chunk, text.size() - first);
    EXPECT_TRUE(cache.Extend(text.subspan(first, count)).ok());
    for (size_t i = first; i < first + count; ++i) {
      WriteRow(BlockAt(cache, i), kBlockBytes, i, RowOf(text, i));
    }
    cache.Commit();
  }
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_TRUE(HasRow(BlockAt(cache, i), kBlockBytes, i, RowOf(text, i))) << i;
  }
  return num_kept;
}

TEST_P(StrategyTest, ATextKeepsExactlyWhatItHasInCommonWithTheLast) {
  uint32_t unused = 1000;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto cache = Make();
    std::vector<TokenId> text = Text(1 + random() % kMaxTokens, 0);
    RunText(*cache, text, 0, 7);
    for (int turn = 1; turn < 6; ++turn) {
      // Tokens that no text had there before, so that the last text is the longest match.
      const size_t common = random() % (text.size() + 1);
      text.resize(common);
      const size_t num_new = 1 + random() % kMaxTokens;
      const std::vector<TokenId> rest = Text(std::min(num_new, kMaxTokens - common), unused);
      unused += 1000;
      text.insert(text.end(), rest.begin(), rest.end());
      const size_t max_kept = random() % 3 == 0 ? random() % kMaxTokens : text.size() - 1;
      ASSERT_EQ(RunText(*cache, text, max_kept, 1 + random() % 40), std::min(common, max_kept));
      ASSERT_EQ(cache->usage().bytes_allocated, BytesReallyHeld());
      ASSERT_EQ(cache->usage().bytes_copied, SumOfEvents(CacheEvent::Kind::kGrowCopy) +
                                                 SumOfEvents(CacheEvent::Kind::kCopyOnWrite));
      kv_cache_->CheckInvariants();
    }
    events_.clear();
  }
}

TEST_P(StrategyTest, RowsThatWereNotCommittedAreNotKept) {
  auto cache = Make();
  const std::vector<TokenId> text = Text(40, 0);
  ASSERT_EQ(cache->Begin(text, 0).value(), 0u);
  ASSERT_TRUE(cache->Extend(std::span(text).first(20)).ok());
  cache->Commit();
  ASSERT_TRUE(cache->Extend(std::span(text).subspan(20)).ok());
  EXPECT_EQ(cache->Begin(text, 39).value(), 20u);
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

class PagedCacheTest : public testing::Test {
 protected:
  CacheOptions MakeOptions(size_t num_blocks) {
    KvCacheOptions options;
    options.groups.emplace_back().block_bytes = kBlockBytes;
    options.budget_bytes = num_blocks * kBlockBytes;
    kv_cache_ = KvCache::Make(std::move(options), &store_).value();
    CacheOptions cache;
    cache.cache = kv_cache_.get();
    cache.store = &store_;
    cache.ns = kv_cache_->OpenNamespace({}).value();
    cache.max_tokens = kMaxTokens;
    return cache;
  }

  TestStore store_{kBlockBytes};
  std::unique_ptr<KvCache> kv_cache_;
};

// Only `paged` remembers more than the last text.
TEST_F(PagedCacheTest, FindsTheTextsOfEarlierSequences) {
  const CacheOptions options = MakeOptions(100);
  const std::vector<TokenId> first = Text(70, 0), second = Text(50, 500);
  {
    const auto cache = MakePagedCache(options);
    EXPECT_EQ(RunText(*cache, first, 69, 16), 0u);
    EXPECT_EQ(RunText(*cache, second, 49, 16), 0u);
    EXPECT_EQ(RunText(*cache, first, 69, 16), 69u);
  }
  const auto cache = MakePagedCache(options);
  EXPECT_EQ(RunText(*cache, second, 49, 16), 49u);
  const auto other = MakePagedCache(options);
  EXPECT_EQ(RunText(*other, second, 49, 16), 49u);
  EXPECT_EQ(other->View().blocks[0], cache->View().blocks[0]);  // shared
  EXPECT_EQ(kv_cache_->stats().one_answer_violations, 0u);
}

TEST_F(PagedCacheTest, AFullBudgetHasNoRoomForCopiesButForTheTextAgain) {
  const auto cache = MakePagedCache(MakeOptions(3));
  const std::vector<TokenId> text = Text(40, 0);
  EXPECT_EQ(RunText(*cache, text, 39, 16), 0u);
  EXPECT_EQ(RunText(*cache, text, 39, 16), 32u);
  EXPECT_EQ(cache->usage().bytes_copied, 0u);
  EXPECT_EQ(cache->usage().bytes_allocated, 3 * kBlockBytes);
}

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
