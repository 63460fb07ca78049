// Where a prompt's tokens came from and why the rest did not, to the token (rule K11).
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

KvCacheOptions WithHistory(size_t num_blocks) {
  KvCacheOptions options;
  options.history_blocks = num_blocks;
  return options;
}

size_t Tokens(const PromptSplit& split, MissReason reason) {
  return split.miss[static_cast<size_t>(reason)];
}

Text PartingAt(Text text, size_t position, uint32_t first = 700) {
  for (size_t i = position; i < text.size(); ++i) {
    text[i] = TokenId{first + static_cast<uint32_t>(i)};
  }
  return text;
}

// What a lookup and Explain() both say, which must be the one same miss.
Miss TheMiss(const TestEngine& engine, const Text& text, size_t num_missed) {
  const Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text});
  const Explanation explanation = engine.cache->Explain(engine.ns, text);
  EXPECT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(explanation.misses.size(), 1u);
  const Miss& miss = explanation.misses.at(0);
  EXPECT_EQ(miss.reason, lease.misses()[0].reason);
  EXPECT_EQ(miss.position, text.size() - num_missed);
  EXPECT_EQ(miss.num_tokens, num_missed);
  EXPECT_EQ(Tokens(explanation.split, miss.reason), num_missed);
  EXPECT_EQ(explanation.split.hit() + explanation.split.missed(), text.size());
  return miss;
}

// ---- Each reason

TEST(KvExplainTest, NeverSeen) {
  TestEngine engine(20);
  const Text text = MakeText(40), longer = MakeText(100);
  EXPECT_EQ(TheMiss(engine, text, 40).reason, MissReason::kNeverSeen);
  { const Sequence sequence = engine.Run(text); }
  EXPECT_EQ(TheMiss(engine, longer, 60).reason, MissReason::kNeverSeen);
}

TEST(KvExplainTest, EvictedNamesThePolicyAndTheTime) {
  for (const char* policy : {"lru", "lfu", "s3fifo", "cost"}) {
    KvCacheOptions options;
    options.eviction = policy;
    TestEngine engine(4, options);
    const Text text = MakeText(48), other = MakeText(32, 1000);
    engine.cache->SetTime(5);
    { const Sequence sequence = engine.Run(text); }
    engine.cache->SetTime(1234);
    { const Sequence sequence = engine.Run(other); }
    const Miss miss = TheMiss(engine, text, 16);
    EXPECT_EQ(miss.reason, MissReason::kEvicted);
    EXPECT_EQ(miss.cause, policy);
    EXPECT_EQ(miss.when_us, 1234);
    const KvStats stats = engine.cache->stats();
    EXPECT_EQ(stats.evicted_blocks[static_cast<size_t>(EvictionCause::kPolicy)], 1u);
    EXPECT_EQ(stats.lifetime_us.count, 1u);
    EXPECT_EQ(stats.lifetime_us.sum, 1229u);
    EXPECT_EQ(stats.idle_before_evict_us.sum, 1229u);
  }
}

TEST(KvExplainTest, EvictedByWhatElse) {
  TestEngine engine(4);
  const Text text = MakeText(32), other = MakeText(48, 1000);
  {
    Sequence sequence =
        engine.Admit(engine.cache->Lookup({.ns = engine.ns, .tokens = text, .ttl_us = 10}));
    engine.Step(sequence, text, 32);
  }
  engine.cache->SetTime(10);
  { const Sequence sequence = engine.Run(other); }
  EXPECT_EQ(TheMiss(engine, text, 16).cause, "expired");
  engine.cache->SetTime(20);
  engine.cache->DropCached();
  const Miss miss = TheMiss(engine, other, 48);
  EXPECT_EQ(miss.cause, "dropped");
  EXPECT_EQ(miss.when_us, 20);
}

TEST(KvExplainTest, UnknownOnceTheHistoryHasForgotten) {
  TestEngine engine(20, WithHistory(3));
  const Text a = MakeText(16), b = MakeText(48, 1000), never = MakeText(16, 9000);
  { const Sequence sequence = engine.Run(b); }
  engine.cache->DropCached();  // three are remembered
  EXPECT_EQ(TheMiss(engine, never, 16).reason, MissReason::kNeverSeen);
  { const Sequence sequence = engine.Run(a); }
  engine.cache->DropCached();  // and a fourth in place of the oldest, the last block of b
  EXPECT_EQ(TheMiss(engine, never, 16).reason, MissReason::kUnknown);
  EXPECT_EQ(TheMiss(engine, a, 16).reason, MissReason::kEvicted);
  EXPECT_EQ(TheMiss(engine, b, 48).reason, MissReason::kEvicted);
  { const Sequence sequence = engine.Run(Text(b.begin(), b.begin() + 32)); }
  EXPECT_EQ(TheMiss(engine, b, 16).reason, MissReason::kUnknown);
}

TEST(KvExplainTest, WithoutAHistoryNothingThatWasEvictedIsCalledNeverSeen) {
  TestEngine engine(20, WithHistory(0));
  const Text text = MakeText(16);
  EXPECT_EQ(TheMiss(engine, text, 16).reason, MissReason::kNeverSeen);
  { const Sequence sequence = engine.Run(text); }
  engine.cache->DropCached();
  EXPECT_EQ(TheMiss(engine, text, 16).reason, MissReason::kUnknown);
}

TEST(KvExplainTest, OtherTokenNamesBothAtTheFirstDifference) {
  TestEngine engine(40);
  const Text text = MakeText(64);
  { const Sequence sequence = engine.Run(text); }
  for (size_t position = 1; position < 64; ++position) {
    const Text other = PartingAt(text, position);
    const Miss miss = TheMiss(engine, other, 64 - position);
    EXPECT_EQ(miss.reason, MissReason::kOtherToken);
    EXPECT_EQ(miss.differs_at, position);
    EXPECT_EQ(miss.wanted, other[position]);
    EXPECT_EQ(miss.cached, text[position]);
  }
}

TEST(KvExplainTest, OtherTokenIsThatOfTheSiblingWithTheLongestCommonPrefix) {
  TestEngine engine(40);
  const Text text = MakeText(64), a = PartingAt(text, 20, 100), b = PartingAt(text, 25, 200);
  { const Sequence sequence = engine.Run(a); }
  { const Sequence sequence = engine.Run(b); }
  const Miss miss = TheMiss(engine, text, 64 - 25);
  EXPECT_EQ(miss.differs_at, 25u);
  EXPECT_EQ(miss.cached, TokenId{225});
}

TEST(KvExplainTest, OtherNamespace) {
  TestEngine engine(20);
  NamespaceSpec spec;
  spec.tenant = "b";
  const NamespaceId other = *engine.cache->OpenNamespace(spec);
  const Text text = MakeText(40);
  { const Sequence sequence = engine.Run(text); }
  const Explanation explanation = engine.cache->Explain(other, text);
  EXPECT_EQ(Tokens(explanation.split, MissReason::kOtherNamespace), 40u);
  EXPECT_EQ(explanation.nodes_visited, 1u);  // its own root
  engine.cache->DropCached(engine.ns);
  EXPECT_EQ(Tokens(engine.cache->Explain(other, text).split, MissReason::kNeverSeen), 40u);
}

TEST(KvExplainTest, LogitsNeeded) {
  TestEngine engine(20);
  const Text text = MakeText(48);
  { const Sequence sequence = engine.Run(text); }
  EXPECT_EQ(TheMiss(engine, text, 1).reason, MissReason::kLogitsNeeded);
  Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text, .max_hit = 20});
  ASSERT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(lease.misses()[0].reason, MissReason::kLogitsNeeded);
  EXPECT_EQ(lease.misses()[0].position, 20u);
  EXPECT_EQ(lease.misses()[0].num_tokens, 28u);
}

TEST(KvExplainTest, PolicyOff) {
  TestEngine engine(20);
  const Text text = MakeText(48);
  { const Sequence sequence = engine.Run(text); }
  Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text, .use_cache = false});
  ASSERT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(lease.misses()[0].reason, MissReason::kPolicyOff);
  { const Sequence sequence = engine.Admit(std::move(lease)); }
  EXPECT_EQ(Tokens(engine.cache->stats().prompts, MissReason::kPolicyOff), 48u);
}

TEST(KvExplainTest, ReasonsAndCausesHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kNumMissReasons; ++i) names.insert(ToString(static_cast<MissReason>(i)));
  EXPECT_EQ(names.size(), kNumMissReasons);
  EXPECT_FALSE(names.contains(""));
}

// ---- Accounting

// peer: vllm#20302
TEST(KvExplainTest, SplitsSumToThePromptsExactly) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  TestEngine engine(24, WithHistory(20));
  uint64_t num_tokens = 0, num_prompts = 0;
  for (int round = 0; round < 300; ++round) {
    Text text(1 + random() % 100, TokenId{1});
    for (TokenId& token : text) token = TokenId{static_cast<uint32_t>(random() % 8 == 0)};
    const size_t max_hit = random() % 4 == 0 ? random() % 100 : SIZE_MAX;
    Lease lease = engine.cache->Lookup(
        {.ns = engine.ns, .tokens = text, .use_cache = random() % 8 > 0, .max_hit = max_hit});
    auto sequence = engine.cache->Admit(lease);
    if (!sequence.ok()) continue;
    num_tokens += text.size();
    ++num_prompts;
    const KvStats stats = engine.cache->stats();
    ASSERT_EQ(stats.prompts.hit() + stats.prompts.missed(), num_tokens);
    ASSERT_EQ(stats.num_prompts, num_prompts);
    if (sequence->length() < text.size()) engine.Step(*sequence, text, text.size());
  }
}

TEST(KvExplainTest, RetriesAndFailedAdmissionsAreNotCounted) {
  TestEngine engine(4);
  const Text text = MakeText(64), other = MakeText(32, 1000);
  std::optional<Sequence> running(engine.Run(other));
  for (int i = 0; i < 5; ++i) {
    Lease lease = engine.Lookup(text);
    EXPECT_FALSE(engine.cache->Admit(lease, {.reserve_tokens = 64}).ok());
  }
  EXPECT_EQ(engine.cache->stats().num_prompts, 1u);
  running.reset();
  Sequence sequence = engine.Admit(engine.Lookup(text), {.reserve_tokens = 64});
  EXPECT_EQ(engine.cache->stats().num_prompts, 2u);
  EXPECT_EQ(engine.cache->stats().prompts.missed(), 32 + 64u);
}

TEST(KvExplainTest, ResumesAreCountedApart) {
  TestEngine engine(20);
  const Text text = MakeText(64);
  { const Sequence sequence = engine.Run(text); }
  const PromptSplit before = engine.cache->stats().prompts;
  { const Sequence sequence = engine.Admit(engine.Lookup(text), {.is_resume = true}); }
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.ram, before.ram);
  EXPECT_EQ(stats.resumes.ram, 63u);
  EXPECT_EQ(Tokens(stats.resumes, MissReason::kLogitsNeeded), 1u);
  EXPECT_EQ(stats.num_resumes, 1u);
}

TEST(KvExplainTest, ReuseGapsAreMeasured) {
  TestEngine engine(20);
  const Text text = MakeText(32);
  engine.cache->SetTime(100);
  { const Sequence sequence = engine.Run(text); }
  engine.cache->SetTime(400);
  { const Lease lease = engine.Lookup(text); }
  const Histogram gaps = engine.cache->stats().reuse_gap_us;
  EXPECT_EQ(gaps.count, 1u);
  EXPECT_EQ(gaps.sum, 300u);
  EXPECT_EQ(gaps.buckets[9], 1u);  // [256, 512)
}

TEST(KvExplainTest, UsageIsByNamespaceAndCountsASharedBlockOnce) {
  TestEngine engine(20);
  NamespaceSpec spec;
  spec.tenant = "b";
  const NamespaceId other = *engine.cache->OpenNamespace(spec);
  const Text text = MakeText(32);
  {
    const Sequence a = engine.Run(text), b = engine.Run(text);
    EXPECT_EQ(engine.cache->usage(engine.ns).active_bytes, 2 * TestEngine::kBlockBytes);
  }
  const NamespaceUsage usage = engine.cache->usage(engine.ns);
  EXPECT_EQ(usage.active_bytes, 0u);
  EXPECT_EQ(usage.cached_bytes, 2 * TestEngine::kBlockBytes);
  EXPECT_EQ(usage.peak_active_bytes, 2 * TestEngine::kBlockBytes);
  EXPECT_EQ(engine.cache->usage(other).peak_active_bytes, 0u);
}

// ---- Explain() itself

TEST(KvExplainTest, ExplainHasNoSideEffects) {
  TestEngine engine(6);
  const Text a = MakeText(32), b = MakeText(32, 1000), c = MakeText(64, 2000);
  engine.cache->SetTime(1);
  { const Sequence sequence = engine.Run(a); }
  engine.cache->SetTime(2);
  { const Sequence sequence = engine.Run(b); }
  engine.cache->SetTime(3);
  const auto tree = engine.cache->Tree(engine.ns);
  for (int i = 0; i < 100; ++i) engine.cache->Explain(engine.ns, a);
  const auto after = engine.cache->Tree(engine.ns);
  ASSERT_EQ(after.size(), tree.size());
  for (size_t i = 0; i < tree.size(); ++i) {
    EXPECT_EQ(after[i].num_uses, tree[i].num_uses);
    EXPECT_EQ(after[i].num_holders, tree[i].num_holders);
    EXPECT_EQ(after[i].tokens, tree[i].tokens);
  }
  EXPECT_EQ(engine.cache->stats().num_prompts, 2u);
  EXPECT_EQ(engine.cache->stats().reuse_gap_us.count, 0u);
  { const Sequence sequence = engine.Run(c); }  // the least recently used goes, and that is a
  EXPECT_EQ(engine.Lookup(a).num_ram_tokens(), 0u);
  EXPECT_EQ(engine.Lookup(b).num_ram_tokens(), 32u);
}

TEST(KvExplainTest, ExplainTellsOfWhatIsInFlight) {
  TestEngine engine(20);
  const Text text = MakeText(64), longer = MakeText(80);
  Sequence producer = engine.Admit(engine.Lookup(text));
  engine.Step(producer, text, 16);
  const Explanation explanation = engine.cache->Explain(engine.ns, longer);
  EXPECT_EQ(explanation.split.ram, 16u);
  EXPECT_EQ(explanation.split.in_flight, 48u);
  EXPECT_EQ(explanation.split.missed(), 16u);
  EXPECT_NE(explanation.ToText().find("48 in flight"), std::string::npos);
}

TEST(KvExplainTest, ATreeIsDrawnFromTheRootOn) {
  TestEngine engine(40);
  const Text a = MakeText(48), b = PartingAt(a, 32);
  const Sequence first = engine.Run(a), second = engine.Run(b);
  const auto tree = engine.cache->Tree(engine.ns);
  ASSERT_EQ(tree.size(), 4u);
  EXPECT_EQ(tree[0].depth, 0u);
  EXPECT_EQ(tree[1].tokens, Text(a.begin(), a.begin() + 32));
  EXPECT_EQ(tree[1].num_holders, 2u);
  for (const size_t i : {2u, 3u}) {
    EXPECT_EQ(tree[i].depth, 2u);
    EXPECT_EQ(tree[i].position, 32u);
    EXPECT_EQ(tree[i].num_holders, 1u);
  }
}

}  // namespace
}  // namespace kvern::kv
