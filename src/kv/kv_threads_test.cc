// The thread contract of kvern/kv.h: one writer, and readers at any time. To be run under TSan.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"
#include "kv/tier/memory.h"

namespace kvern::kv {
namespace {

KvCacheOptions Everything(Tier* tier) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(20, 2),
                    TestEngine::StateGroup(2)};
  options.tier = tier;
  options.tier_io_blocks = 4;
  options.history_blocks = 50;
  options.span_bytes_per_tenant = 8 * TestEngine::kBlockBytes;
  return options;
}

class Reader {
 public:
  Reader(const TestEngine& engine, const Text& text)
      : thread_([this, &engine, &text] {
          while (!is_done_.load()) Read(*engine.cache, engine.ns, text);
        }) {}
  ~Reader() { thread_.join(); }

  void Stop() { is_done_ = true; }
  uint64_t num_reads() const { return num_reads_.load(); }
  uint64_t num_wrong() const { return num_wrong_.load(); }

 private:
  void Read(const KvCache& cache, NamespaceId ns, const Text& text) {
    const KvStats stats = cache.stats();
    num_wrong_ += stats.bytes.Sum() != stats.budget_bytes;
    const Explanation explanation = cache.Explain(ns, text);
    num_wrong_ += explanation.split.hit() + explanation.split.missed() != text.size();
    num_wrong_ += cache.usage(ns).active_bytes > stats.budget_bytes;
    for (const TreeNode& node : cache.Tree(ns)) num_wrong_ += node.depth > 0 && node.tokens.empty();
    ++num_reads_;
    std::this_thread::yield();
  }

  std::atomic<bool> is_done_{false};
  std::atomic<uint64_t> num_reads_{0};
  std::atomic<uint64_t> num_wrong_{0};
  std::thread thread_;
};

class Writer {
 public:
  Writer(TestEngine& engine, uint64_t seed) : engine_(engine), random_(seed) {}

  void Step() {
    KvCache& cache = *engine_.cache;
    cache.SetTime(++now_us_);
    if (sequences_.size() < 3) return Begin();
    Sequence& sequence = sequences_[random_() % sequences_.size()];
    switch (random_() % 8) {
      case 0:
        std::swap(sequence, sequences_.back());
        sequences_.pop_back();
        return;
      case 1:
        (void)sequence.Truncate(sequence.length() - std::min<size_t>(sequence.length(), 2));
        return;
      case 2:
        cache.PollTier();
        cache.TakeEvents();
        return;
      case 3:
        if (random_() % 8 == 0) cache.DropCached();
        cache.KeepSpan(engine_.ns, text_, 10);
        return;
      default: {
        const Text more = RandomText(1 + random_() % 20);
        if (sequence.Append(more).ok()) sequence.Commit(sequence.length());
      }
    }
  }

 private:
  void Begin() {
    text_ = RandomText(1 + random_() % 60);
    Lease lease = engine_.Lookup(text_);
    if (lease.producer() && random_() % 2 == 0) {
      auto waiter = engine_.cache->Wait(lease, 0);
      if (waiter.ok()) lease = engine_.cache->Retry(std::move(*waiter));
    }
    if (lease.num_tier_tokens() > 0 && engine_.cache->StartLoad(lease).ok()) {
      while (!engine_.cache->Poll(lease).done) {
      }
      engine_.cache->Install(lease);
    }
    auto sequence = engine_.cache->Admit(lease);
    if (sequence.ok()) sequences_.push_back(std::move(sequence).value());
    if (!sequence.ok() && !sequences_.empty()) sequences_.pop_back();
  }

  Text RandomText(size_t size) {
    Text text(size);
    for (TokenId& token : text) token = TokenId{random_() % 16 == 0 ? 1u : 0u};
    return text;
  }

  TestEngine& engine_;
  std::mt19937_64 random_;
  int64_t now_us_ = 0;
  Text text_;
  std::vector<Sequence> sequences_;
};

TEST(KvThreadsTest, ReadersSeeWholeStatesWhileTheWriterWorks) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  MemoryTier tier({.max_latency_polls = 4, .reorder = true, .seed = seed});
  TestEngine engine(72, Everything(&tier));
  const Text text(50, TokenId{0});
  Reader readers[] = {{engine, text}, {engine, text}};
  {
    Writer writer(engine, seed);
    const auto has_read = [](const Reader& reader) { return reader.num_reads() >= 20; };
    for (int step = 0; step < 2000 || !std::ranges::all_of(readers, has_read); ++step) {
      writer.Step();
    }
  }
  for (Reader& reader : readers) reader.Stop();
  for (const Reader& reader : readers) {
    EXPECT_EQ(reader.num_wrong(), 0u);
  }
  engine.cache->CheckInvariants();
}

}  // namespace
}  // namespace kvern::kv
