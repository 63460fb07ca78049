// What is kept and for how long: spans, retention, time to live, and memory that moves between
// groups. Through KvCache, as engines see it.
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "kv/eviction_history.h"
#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = TestEngine::kBlockBytes;

KvCacheOptions WithSpans(size_t num_blocks) {
  KvCacheOptions options;
  options.span_bytes_per_tenant = num_blocks * kBlockBytes;
  return options;
}

// A text that is computed and released with this worth.
void Cache(TestEngine& engine, const Text& text, Retention retention,
           std::optional<int64_t> ttl_us = {}) {
  Sequence sequence = engine.Admit(engine.cache->Lookup(
      {.ns = engine.ns, .tokens = text, .retention = retention, .ttl_us = ttl_us}));
  engine.Step(sequence, text, text.size());
}

size_t NumHit(TestEngine& engine, const Text& text) {
  return engine.cache->Explain(engine.ns, text).split.ram + 1;  // a full hit needs its logits
}

size_t NumEvicted(const TestEngine& engine, EvictionCause cause) {
  return engine.cache->stats().evicted_blocks[static_cast<size_t>(cause)];
}

// ---- Retention and TTL

// peer: vllm#47802
TEST(PrefixCacheTest, LowerRetentionGoesFirstWhateverWasUsedLast) {
  TestEngine engine(9);
  const Text high = MakeText(32), normal = MakeText(32, 1000), low = MakeText(32, 2000);
  Cache(engine, high, Retention::kHigh);
  Cache(engine, normal, Retention::kNormal);
  Cache(engine, low, Retention::kLow);
  const Text five = MakeText(80, 5000), seven = MakeText(112, 6000);
  { const Sequence sequence = engine.Run(five, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, low), 1u);
  EXPECT_EQ(NumHit(engine, normal), 32u);
  { const Sequence sequence = engine.Run(seven, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, normal), 1u);
  EXPECT_EQ(NumHit(engine, high), 32u);
}

TEST(PrefixCacheTest, RetentionOrdersAndNeverRefuses) {
  TestEngine engine(4);
  const Text high = MakeText(64), wanted = MakeText(64, 1000);
  Cache(engine, high, Retention::kHigh);
  const Sequence sequence = engine.Run(wanted);
  EXPECT_TRUE(engine.Holds(sequence, wanted, 64));
}

TEST(PrefixCacheTest, ALookupRaisesRetention) {
  TestEngine engine(5);
  const Text a = MakeText(32), b = MakeText(32, 1000);
  Cache(engine, a, Retention::kLow);
  Cache(engine, b, Retention::kLow);
  {
    const Lease lease =
        engine.cache->Lookup({.ns = engine.ns, .tokens = a, .retention = Retention::kHigh});
  }
  engine.cache->SetTime(5);
  { const Lease lease = engine.Lookup(b); }  // normal now, and the last that was used
  const Text fill = MakeText(48, 5000);
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, a), 32u);
  EXPECT_EQ(NumHit(engine, b), 1u);
}

// peer: vllm#8333
TEST(PrefixCacheTest, WhatHasExpiredGoesBeforeEverythingElse) {
  TestEngine engine(5);
  const Text expired = MakeText(32), low = MakeText(32, 1000), fill = MakeText(48, 5000);
  Cache(engine, expired, Retention::kHigh, /*ttl_us=*/100);
  Cache(engine, low, Retention::kLow);
  engine.cache->SetTime(99);
  EXPECT_EQ(NumHit(engine, expired), 32u);
  engine.cache->SetTime(100);
  EXPECT_EQ(NumHit(engine, expired), 32u);  // until the memory is wanted
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, expired), 1u);
  EXPECT_EQ(NumHit(engine, low), 32u);
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kExpired), 2u);
}

TEST(PrefixCacheTest, AUseStartsTheTimeToLiveAgain) {
  TestEngine engine(4);
  const Text text = MakeText(32), fill = MakeText(48, 5000);
  Cache(engine, text, Retention::kNormal, /*ttl_us=*/100);
  engine.cache->SetTime(90);
  { const Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text, .ttl_us = 100}); }
  engine.cache->SetTime(150);
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kExpired), 0u);
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kPolicy), 1u);
}

TEST(PrefixCacheTest, EvictionLeavesNoHole) {
  TestEngine engine(8);
  const Text text = MakeText(128);
  Cache(engine, text, Retention::kNormal);
  for (size_t left = 7; left > 0; --left) {
    const Text fill = MakeText((8 - left) * 16, 5000);
    { const Sequence sequence = engine.Run(fill, {.publish = false}); }
    EXPECT_EQ(engine.cache->Explain(engine.ns, text).split.ram, left * 16);
    engine.cache->CheckInvariants();
  }
}

// A look at twenty thousand leaves for each victim would take minutes.
// peer: sglang#38454
TEST(PrefixCacheTest, EvictionDoesNotLookAtAllLeaves) {
  constexpr uint32_t kLeaves = 20000;
  TestEngine engine(kLeaves);
  Text text = MakeText(16);
  for (uint32_t i = 0; i < kLeaves; ++i) {
    text[0] = TokenId{i};
    const Sequence sequence = engine.Run(text);
  }
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < kLeaves; ++i) {
    text[0] = TokenId{kLeaves + i};
    const Sequence sequence = engine.Run(text);
  }
  const auto elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kPolicy), kLeaves);
  EXPECT_LT(elapsed, std::chrono::seconds(20));
}

// ---- Spans

TEST(PrefixCacheTest, ASpanOutlivesEverythingElseUntilItEnds) {
  TestEngine engine(6, WithSpans(2));
  const Text span = MakeText(32), high = MakeText(32, 1000), fill = MakeText(64, 5000);
  Cache(engine, span, Retention::kLow);
  const SpanGrant grant = engine.cache->KeepSpan(engine.ns, span, 1000);
  EXPECT_EQ(grant.num_tokens, 32u);
  EXPECT_EQ(grant.expires_us, 1000);
  Cache(engine, high, Retention::kHigh);
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, span), 32u);
  EXPECT_EQ(NumHit(engine, high), 1u);
  engine.cache->SetTime(1000);
  engine.cache->CheckInvariants();
  Cache(engine, high, Retention::kHigh);
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, span), 1u);
  EXPECT_EQ(NumHit(engine, high), 32u);
}

TEST(PrefixCacheTest, ASpanCanBeEndedEarly) {
  TestEngine engine(6, WithSpans(2));
  const Text span = MakeText(32), high = MakeText(32, 1000), fill = MakeText(64, 5000);
  Cache(engine, span, Retention::kLow);
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, span, 1'000'000).num_tokens, 32u);
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, span, 0).num_tokens, 0u);
  engine.cache->CheckInvariants();
  Cache(engine, high, Retention::kHigh);
  { const Sequence sequence = engine.Run(fill, {.publish = false}); }
  EXPECT_EQ(NumHit(engine, span), 1u);
  EXPECT_EQ(NumHit(engine, high), 32u);
  // And its budget is free for others.
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, high, 1'000'000).num_tokens, 32u);
  engine.cache->CheckInvariants();
}

// Pinned text yields to running work: it cannot fill the pool for good.
// peer: sglang#27024
TEST(PrefixCacheTest, SpansThatWouldFillThePoolYieldToRunningWork) {
  TestEngine engine(8, WithSpans(8));
  const Text a = MakeText(64), b = MakeText(64, 1000), wanted = MakeText(96, 2000);
  Cache(engine, a, Retention::kNormal);
  Cache(engine, b, Retention::kNormal);
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, a, 1000000).num_tokens, 64u);
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, b, 1000000).num_tokens, 64u);
  EXPECT_EQ(engine.bytes().cached, 8 * kBlockBytes);
  const Sequence sequence = engine.Run(wanted);
  EXPECT_TRUE(engine.Holds(sequence, wanted, 96));
  engine.cache->CheckInvariants();
  // And their budget is free for others.
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, wanted, 1000000).num_tokens, 96u);
  engine.cache->CheckInvariants();
}

TEST(PrefixCacheTest, SpansAreGrantedAsFarAsTheTenantsBudgetGoes) {
  TestEngine engine(40, WithSpans(5));
  NamespaceSpec spec;
  spec.tenant = "b";
  const NamespaceId first = engine.ns, other = *engine.cache->OpenNamespace(spec);
  spec.tenant = "";
  spec.adapter = "x";
  const NamespaceId same_tenant = *engine.cache->OpenNamespace(spec);
  const Text text = MakeText(64);
  for (const NamespaceId ns : {first, other, same_tenant}) {
    engine.ns = ns;
    Cache(engine, text, Retention::kNormal);
  }
  EXPECT_EQ(engine.cache->KeepSpan(first, text, 100).num_tokens, 64u);
  EXPECT_EQ(engine.cache->KeepSpan(same_tenant, text, 100).num_tokens, 16u);
  EXPECT_EQ(engine.cache->KeepSpan(other, text, 100).num_tokens, 64u);
  EXPECT_EQ(engine.cache->KeepSpan(first, text, 200).num_tokens, 64u);  // lengthened, not charged
  engine.cache->CheckInvariants();
  engine.cache->SetTime(100);
  EXPECT_EQ(engine.cache->KeepSpan(same_tenant, text, 100).num_tokens, 16u);
  engine.cache->SetTime(200);
  EXPECT_EQ(engine.cache->KeepSpan(same_tenant, text, 100).num_tokens, 64u);
  engine.cache->CheckInvariants();
}

TEST(PrefixCacheTest, ASpanOfATextThatIsNotThereGrantsNothing) {
  TestEngine engine(10, WithSpans(5));
  const Text text = MakeText(64);
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, text, 100).num_tokens, 0u);
  Cache(engine, text, Retention::kNormal);
  Text other = text;
  other[40] = TokenId{999};
  EXPECT_EQ(engine.cache->KeepSpan(engine.ns, other, INT64_MAX).num_tokens, 32u);
  engine.cache->DropCached();
  engine.cache->CheckInvariants();
}

// ---- History

TEST(EvictionHistoryTest, TheNewestAreRememberedAndTheNewestOfATextIsFound) {
  EvictionHistory history(3);
  const auto add = [&](uint64_t chain, int64_t when_us) {
    history.Add({.chain = chain, .when_us = when_us, .cause = EvictionCause::kPolicy});
  };
  add(1, 10);
  add(2, 20);
  add(1, 30);
  EXPECT_FALSE(history.has_forgotten());
  EXPECT_EQ(history.Find(1)->when_us, 30);
  for (uint64_t i = 0; i < 3; ++i) add(100 + i, 40);
  EXPECT_TRUE(history.has_forgotten());
  EXPECT_FALSE(history.Find(1));
  EXPECT_FALSE(history.Find(2));
  EXPECT_TRUE(history.Find(100) && history.Find(102));
}

// ---- Groups that share a budget

// Cached windows lie thinly in their slabs; a slab's worth of them moves together.
TEST(PrefixCacheTest, MovingCachedBlocksBetweenSlabsKeepsTheirContent) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(17)};
  TestEngine engine(48, options);  // six slabs of eight
  std::vector<Text> texts;
  for (uint32_t i = 0; i < 8; ++i) texts.push_back(MakeText(32, 1000 * (i + 1)));
  for (const Text& text : texts) {
    const Sequence sequence = engine.Run(text);
  }
  // 16 blocks in two slabs of full attention; 16 and the zero block in three of windows, of which
  // no query sees every other one. The last slab is too little for:
  const Text wanted = MakeText(12 * 16, 50);
  Sequence sequence = engine.Admit(engine.Lookup(wanted), {.publish = false});
  for (size_t end = 16; end <= wanted.size(); end += 16) {
    engine.Step(sequence, wanted, end);
    engine.cache->CheckInvariants();
  }
  EXPECT_TRUE(engine.HoldsAll(sequence, wanted, wanted.size()));
  EXPECT_GT(NumEvicted(engine, EvictionCause::kWindow), 0u);
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kPolicy), 0u);
  for (const Text& text : texts) {
    Lease lease = engine.Lookup(text);
    EXPECT_EQ(lease.num_ram_tokens(), 32u);
    EXPECT_TRUE(engine.HoldsAll(engine.Admit(std::move(lease)), text, 32));
  }
}

TEST(PrefixCacheTest, AnIdleGroupsMemoryServesAnother) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(17)};
  TestEngine engine(80, options);
  const Text text = MakeText(64 * 16);
  Sequence sequence = engine.Admit(engine.Lookup(text));
  for (size_t end = 16; end <= text.size(); end += 16) engine.Step(sequence, text, end);
  EXPECT_TRUE(engine.HoldsAll(sequence, text, text.size()));  // 64 of 80, where half is 40
}

TEST(PrefixCacheTest, DropCachedSparesWhatIsHeldAndReportsTheRest) {
  TestEngine engine(20);
  const Text held = MakeText(32), dropped = MakeText(40, 1000);
  const Sequence sequence = engine.Run(held);
  Cache(engine, dropped, Retention::kHigh);
  EXPECT_EQ(engine.cache->DropCached(), 3u);
  EXPECT_EQ(NumEvicted(engine, EvictionCause::kDropped), 3u);
  EXPECT_EQ(NumHit(engine, held), 32u);
  EXPECT_EQ(engine.cache->DropCached(), 0u);
}

}  // namespace
}  // namespace kvern::kv
