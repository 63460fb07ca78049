// KvCache by scenario: sharing, drafts and rollback, memory that runs out, duplicates.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = TestEngine::kBlockBytes;

// The same up to `position`, then other tokens.
Text PartingAt(Text text, size_t position, uint32_t first = 700) {
  for (size_t i = position; i < text.size(); ++i) {
    text[i] = TokenId{first + static_cast<uint32_t>(i)};
  }
  return text;
}

// A sequence that computes all of a text, but with wrong rows from `position` on.
Sequence RunWithOtherRows(TestEngine& engine, Lease lease, const Text& text, size_t position) {
  Sequence sequence = engine.Admit(std::move(lease));
  CHECK(engine.Compute(sequence, text, text.size()).ok());
  engine.Write(sequence, PartingAt(text, position), position, text.size());
  sequence.Commit(text.size());
  return sequence;
}

TEST(KvCacheTest, ASecondPromptSharesWholeBlocksAndCopiesRows) {
  TestEngine engine(20);
  const Text text = MakeText(40);
  { const Sequence first = engine.Run(text); }
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.bytes().cached, 3 * kBlockBytes);

  Text other = text;
  other[37] = TokenId{999};
  Lease lease = engine.Lookup(other);
  EXPECT_EQ(lease.num_ram_tokens(), 32u);
  EXPECT_EQ(lease.num_partial_tokens(), 5u);
  ASSERT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(lease.misses()[0].reason, MissReason::kOtherToken);
  EXPECT_EQ(lease.misses()[0].position, 37u);
  EXPECT_EQ(lease.misses()[0].cached, TokenId{37});

  Sequence second = engine.Admit(std::move(lease));
  EXPECT_EQ(second.length(), 37u);
  EXPECT_TRUE(engine.Holds(second, other, 37));
  engine.Step(second, other, 40);
  EXPECT_TRUE(engine.Holds(second, other, 40));
  engine.cache->CheckInvariants();
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.ram, 32u);
  EXPECT_EQ(stats.prompts.partial, 5u);
  EXPECT_EQ(stats.prompts.hit() + stats.prompts.missed(), 80u);
}

// peer: llama.cpp#26204
TEST(KvCacheTest, BranchesOfARunningSequenceShareItsPrefix) {
  TestEngine engine(40);
  const Text text = MakeText(64);
  Sequence first = engine.Run(text);
  std::vector<Text> branches;
  for (uint32_t i = 0; i < 4; ++i) branches.push_back(PartingAt(MakeText(80), 64, 1000 * (i + 1)));
  std::vector<Sequence> sequences;
  for (const Text& branch : branches) {
    Lease lease = engine.Lookup(branch);
    EXPECT_EQ(lease.num_ram_tokens(), 64u);
    sequences.push_back(engine.Admit(std::move(lease)));
    engine.Step(sequences.back(), branch, 80);
  }
  EXPECT_EQ(engine.bytes().active, (4 + 4) * kBlockBytes);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(engine.Holds(sequences[i], branches[i], 80));
  engine.cache->CheckInvariants();
}

// A long text of another does not hide a short prefix, and using it takes nothing away.
TEST(KvCacheTest, AShortPrefixUnderALongTextIsSharedByAnyNumber) {
  TestEngine engine(80);
  const Text chat = MakeText(600);
  { const Sequence first = engine.Run(chat); }
  const Text a = PartingAt(MakeText(80), 64, 2000), b = PartingAt(MakeText(80), 64, 3000);
  for (const Text* text : {&a, &b, &a}) {
    Lease lease = engine.Lookup(*text);
    EXPECT_GE(lease.num_ram_tokens(), 64u);
    const Sequence sequence = engine.Run(*text);
    EXPECT_TRUE(engine.Holds(sequence, *text, 80));
  }
  EXPECT_EQ(engine.Lookup(chat).num_ram_tokens(), 592u);
}

TEST(KvCacheTest, ADraftFillsABlockAnotherSequenceLeasesItAndTheFirstRollsBack) {
  TestEngine engine(20);
  const Text prompt = MakeText(24), text = MakeText(32), other = PartingAt(text, 24);
  Sequence first = engine.Run(prompt);
  ASSERT_TRUE(engine.Compute(first, text, 32).ok());
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 16u);  // no step has confirmed the draft
  first.Commit(32);
  Lease lease = engine.Lookup(text);
  EXPECT_EQ(lease.num_ram_tokens(), 32u);

  ASSERT_TRUE(first.Truncate(24).ok());
  EXPECT_TRUE(engine.Holds(first, text, 24));
  engine.Step(first, other, 32);
  engine.cache->CheckInvariants();
  Sequence second = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.Holds(second, text, 32));
  EXPECT_TRUE(engine.Holds(first, other, 32));
  EXPECT_EQ(second.View({}).blocks[0], first.View({}).blocks[0]);
  EXPECT_NE(second.View({}).blocks[1], first.View({}).blocks[1]);
  engine.cache->CheckInvariants();
}

TEST(KvCacheTest, ARejectedDraftIsNeverFound) {
  TestEngine engine(20);
  const Text prompt = MakeText(24), draft = MakeText(40), other = PartingAt(draft, 24);
  {
    Sequence sequence = engine.Run(prompt);
    ASSERT_TRUE(engine.Compute(sequence, draft, 40).ok());
    ASSERT_TRUE(sequence.Truncate(24).ok());
    ASSERT_TRUE(engine.Compute(sequence, other, 40).ok());
    EXPECT_TRUE(engine.Holds(sequence, other, 40));
  }
  Lease lease = engine.Lookup(draft);
  EXPECT_EQ(lease.num_ram_tokens() + lease.num_partial_tokens(), 24u);
  EXPECT_EQ(engine.bytes().active + engine.bytes().cached, 2 * kBlockBytes);
}

TEST(KvCacheTest, RollingBackIntoAPublishedBlockAndOnAgainMergesWithIt) {
  TestEngine engine(20);
  const Text text = MakeText(48);
  Sequence sequence = engine.Run(text);
  for (const size_t length : {40u, 33u, 32u, 17u, 16u, 1u, 0u}) {
    ASSERT_TRUE(sequence.Truncate(length).ok());
    EXPECT_EQ(sequence.num_published(), length / 16 * 16);
    EXPECT_TRUE(engine.Holds(sequence, text, length));
    engine.cache->CheckInvariants();
    engine.Step(sequence, text, 48);
    EXPECT_EQ(sequence.num_published(), 48u);
    EXPECT_EQ(engine.bytes().active, 3 * kBlockBytes);
    EXPECT_EQ(engine.bytes().cached, 0u);
    engine.cache->CheckInvariants();
  }
  EXPECT_GT(engine.cache->stats().blocks_merged, 0u);
}

TEST(KvCacheTest, CopyOnWriteUnderExhaustionIsRefusedAndChangesNothing) {
  TestEngine engine(3);
  const Text text = MakeText(44);
  Sequence sequence = engine.Admit(engine.Lookup(text));
  engine.Step(sequence, text, 40);
  {
    Sequence fork = sequence.Fork();
    for (Sequence* writer : {&sequence, &fork}) {
      EXPECT_EQ(writer->Reserve(1).error().code, ErrorCode::kOutOfMemory);
      EXPECT_EQ(engine.Compute(*writer, text, 41).error().code, ErrorCode::kOutOfMemory);
      EXPECT_EQ(writer->length(), 40u);
      EXPECT_TRUE(engine.Holds(*writer, text, 40));
    }
    engine.cache->CheckInvariants();
    EXPECT_EQ(engine.bytes().reserved, 0u);
  }
  engine.Step(sequence, text, 44);
  EXPECT_TRUE(engine.Holds(sequence, text, 44));
}

TEST(KvCacheTest, ACopyOfAPublishedBlockUnderExhaustionIsRefusedAndChangesNothing) {
  TestEngine engine(2);
  const Text text = MakeText(32), other = PartingAt(text, 20);
  Sequence sequence = engine.Run(text);
  Lease lease = engine.Lookup(text);
  ASSERT_TRUE(sequence.Truncate(20).ok());
  EXPECT_EQ(sequence.Append(std::span(other).subspan(20, 1)).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(sequence.length(), 20u);
  EXPECT_TRUE(engine.Holds(sequence, text, 20));
  engine.cache->CheckInvariants();
  EXPECT_TRUE(engine.Holds(engine.Admit(std::move(lease)), text, 32));
}

TEST(KvCacheTest, APromiseCountsTheCopyThatAForkMakesNecessary) {
  TestEngine engine(4);
  const Text text = MakeText(64), a = PartingAt(text, 40, 800), b = PartingAt(text, 40, 900);
  Sequence first = engine.Admit(engine.Lookup(text));
  engine.Step(first, text, 40);
  Sequence second = first.Fork();
  ASSERT_TRUE(second.Reserve(8).ok());
  EXPECT_EQ(first.Reserve(8).error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(engine.Compute(second, b, 48).ok());  // what is promised cannot fail
  ASSERT_TRUE(engine.Compute(first, a, 48).ok());   // the block is its own now
  EXPECT_TRUE(engine.Holds(first, a, 48));
  EXPECT_TRUE(engine.Holds(second, b, 48));
}

TEST(KvCacheTest, AnAllocationThatWouldEvictItsOwnHitIsRefused) {
  TestEngine engine(4);
  const Text text = MakeText(32), longer = MakeText(96), old = MakeText(16, 5000);
  { const Sequence sequence = engine.Run(text); }
  { const Sequence sequence = engine.Run(old); }
  Lease lease = engine.Lookup(longer);
  ASSERT_EQ(lease.num_ram_tokens(), 32u);
  const auto refused = engine.cache->Admit(lease, {.reserve_tokens = 48});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(lease.num_ram_tokens(), 32u);  // as before, and nothing was evicted for nothing
  EXPECT_EQ(engine.bytes().cached, kBlockBytes);
  engine.cache->CheckInvariants();

  const Sequence sequence = engine.Admit(std::move(lease), {.reserve_tokens = 32});
  EXPECT_TRUE(engine.Holds(sequence, text, 32));
  EXPECT_EQ(engine.Lookup(old).num_ram_tokens(), 0u);
}

// A prompt of which memory holds nothing else than what it hits must get in all the same.
// peer: mistral.rs#1470
TEST(KvCacheTest, APoolJustLargeEnoughServesTheSameTextAgainAndAgain) {
  TestEngine engine(3);
  const Text text = MakeText(40);
  for (int round = 0; round < 4; ++round) {
    Lease lease = engine.Lookup(text);
    auto sequence = engine.cache->Admit(lease, {.reserve_tokens = 8});
    ASSERT_TRUE(sequence.ok()) << "round " << round << ": " << sequence.error().message;
    if (sequence->length() < 40) engine.Step(*sequence, text, 40);
    EXPECT_TRUE(engine.Holds(*sequence, text, 40));
    engine.cache->CheckInvariants();
  }
}

TEST(KvCacheTest, EvictionPassesByWhatALeaseHolds) {
  TestEngine engine(6);
  const Text leased = MakeText(40), old = MakeText(32, 1000), wanted = MakeText(48, 2000);
  { const Sequence sequence = engine.Run(leased); }
  Lease lease = engine.Lookup(leased);  // two blocks, and the rows of a third
  { const Sequence sequence = engine.Run(old); }
  const Sequence running = engine.Run(wanted);
  EXPECT_EQ(engine.Lookup(old).num_ram_tokens(), 0u);
  engine.cache->CheckInvariants();
  EXPECT_EQ(lease.num_ram_tokens(), 32u);
  // The memory for copied rows is another's, so it goes without them.
  const Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_EQ(sequence.length(), 32u);
  EXPECT_TRUE(engine.Holds(sequence, leased, 32));
}

// peer: llama.cpp#22629 openvino.genai#4481 ik_llama.cpp#2320 mistral.rs#1528
TEST(KvCacheTest, MemoryNeverExceedsTheBudget) {
  TestEngine engine(10);
  for (uint32_t i = 0; i < 60; ++i) {
    const Text text = MakeText(20 + i * 7 % 100, i % 13 * 1000);
    const Sequence sequence = engine.Run(text);
    EXPECT_TRUE(engine.Holds(sequence, text, text.size()));
    EXPECT_LE(engine.store.bytes_held(), 10 * kBlockBytes);
    EXPECT_EQ(engine.bytes().Sum(), 10 * kBlockBytes);
  }
  EXPECT_TRUE(engine.IsEmptyOnceDropped());
}

// peer: llama.cpp#23652
TEST(KvCacheTest, ExhaustionRefusesTheNewcomerAndHarmsNoOther) {
  TestEngine engine(4);
  const Text a = MakeText(32), b = MakeText(32, 1000), c = MakeText(32, 2000);
  const Sequence first = engine.Run(a), second = engine.Run(b);
  Lease lease = engine.Lookup(c);
  EXPECT_FALSE(engine.cache->Admit(lease, {.reserve_tokens = 1}).ok());
  EXPECT_TRUE(engine.Holds(first, a, 32));
  EXPECT_TRUE(engine.Holds(second, b, 32));
}

// ---- Duplicates

TEST(KvCacheTest, TwoWhoComputedTheSameEndUpWithOneCopy) {
  TestEngine engine(20);
  const Text text = MakeText(64);
  Lease lease_a = engine.Lookup(text), lease_b = engine.Lookup(text);
  Sequence a = engine.Admit(std::move(lease_a)), b = engine.Admit(std::move(lease_b));
  engine.Step(a, text, 32);
  ASSERT_TRUE(engine.Compute(b, text, 64).ok());
  EXPECT_EQ(engine.bytes().active, 6 * kBlockBytes);
  b.Commit(64);
  engine.Step(a, text, 64);
  EXPECT_EQ(engine.bytes().active, 4 * kBlockBytes);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(a.View({}).blocks[i], b.View({}).blocks[i]);
  EXPECT_EQ(engine.cache->stats().blocks_merged, 4u);
  EXPECT_EQ(engine.cache->stats().one_answer_violations, 0u);
  engine.cache->CheckInvariants();
}

TEST(KvCacheTest, ForksThatPublishTheSameBlocksShareThem) {
  TestEngine engine(20);
  const Text text = MakeText(64);
  Sequence a = engine.Admit(engine.Lookup(text));
  ASSERT_TRUE(engine.Compute(a, text, 40).ok());
  Sequence b = a.Fork();
  b.Commit(40);
  a.Commit(40);
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.bytes().active, 3 * kBlockBytes);
  engine.Step(a, text, 64);
  engine.Step(b, text, 64);
  EXPECT_EQ(engine.bytes().active, 4 * kBlockBytes);
  EXPECT_TRUE(engine.Holds(a, text, 64) && engine.Holds(b, text, 64));
  engine.cache->CheckInvariants();
}

// peer: vllm#40896 sglang#34683
TEST(KvCacheTest, TwoAnswersForOneTextAreCountedAndNeitherIsServed) {
  TestEngine engine(30);
  const Text text = MakeText(64);
  Lease lease_a = engine.Lookup(text), lease_b = engine.Lookup(text);
  Sequence a = engine.Admit(std::move(lease_a));
  engine.Step(a, text, 64);
  Sequence b = RunWithOtherRows(engine, std::move(lease_b), text, 20);
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.cache->stats().one_answer_violations, 1u);
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 16u);
  EXPECT_TRUE(engine.Holds(a, text, 64));
  EXPECT_TRUE(engine.Holds(b, text, 20));
  EXPECT_TRUE(HasRow(b.View({}).blocks[1], kBlockBytes, 30,
                     RowContent(engine.ns, PartingAt(text, 20), 30)));
  EXPECT_EQ(b.num_published(), 0u);
  { const Sequence gone = std::move(a); }
  { const Sequence gone = std::move(b); }
  EXPECT_TRUE(engine.IsEmptyOnceDropped());
}

// The first one's blocks are out of the tree, and it goes back and on within them.
TEST(KvCacheTest, ASequenceGoesBackWithinBlocksThatWereTakenOutOfTheTree) {
  for (const int variant : {0, 1, 2, 3}) {
    KvCacheOptions options;
    options.groups = {TestEngine::FullGroup()};
    if (variant % 2 == 1) options.groups.push_back(TestEngine::WindowGroup(70));
    TestEngine engine(40, options);
    const Text text = MakeText(64), other = PartingAt(text, 40);
    Lease lease_a = engine.Lookup(text), lease_b = engine.Lookup(text);
    {
      Sequence a = engine.Admit(std::move(lease_a));
      engine.Step(a, text, 64);
      const Sequence b = RunWithOtherRows(engine, std::move(lease_b), text, 20);
      ASSERT_TRUE(a.Truncate(40).ok());
      engine.cache->CheckInvariants();
      engine.Step(a, other, 64);
      EXPECT_TRUE(engine.HoldsAll(a, other, 64));
      engine.cache->CheckInvariants();
    }
    engine.cache->CheckInvariants();
    if (variant >= 2) engine.cache->DropCached();
    for (uint32_t i = 0; i < 4; ++i) {  // the memory is wanted again
      const Text next = MakeText(160, 4000 + 1000 * i);
      const Sequence sequence = engine.Run(next);
      EXPECT_TRUE(engine.HoldsAll(sequence, next, 160));
    }
    EXPECT_TRUE(engine.IsEmptyOnceDropped());
  }
}

// A lease and a waiter on text that turns out to have two answers.
TEST(KvCacheTest, LeasesAndWaitersOutliveTheTextThatTheyFound) {
  for (const bool is_hybrid : {false, true}) {
    KvCacheOptions options;
    options.groups = {TestEngine::FullGroup()};
    if (is_hybrid) options.groups.push_back(TestEngine::WindowGroup(40));
    TestEngine engine(64, options);
    const Text text = MakeText(64), longer = MakeText(96);
    Lease lease_a = engine.Lookup(longer), lease_b = engine.Lookup(text);
    Sequence a = engine.Admit(std::move(lease_a));
    engine.Step(a, longer, 64);
    Lease held = engine.Lookup(text), waiting = engine.Lookup(longer);
    EXPECT_EQ(held.num_ram_tokens(), 64u);
    Waiter waiter = *engine.cache->Wait(waiting, 0);
    const Sequence b = RunWithOtherRows(engine, std::move(lease_b), text, 20);
    engine.cache->CheckInvariants();
    EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 16u);
    Sequence c = engine.Admit(std::move(held));  // it was promised these rows
    EXPECT_TRUE(engine.HoldsAll(c, text, 64));
    engine.Step(c, longer, 96);
    EXPECT_TRUE(engine.HoldsAll(c, longer, 96));
    engine.Step(a, longer, 96);  // learns that nobody finds what it computes
    const auto events = engine.cache->TakeEvents();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Event::Kind::kTakeOver);
    Sequence d = engine.Admit(engine.cache->Retry(std::move(waiter)));
    EXPECT_LE(d.length(), 16u);
    engine.Step(d, longer, 96);
    EXPECT_TRUE(engine.HoldsAll(d, longer, 96));
    engine.cache->CheckInvariants();
    EXPECT_EQ(engine.Lookup(longer).num_ram_tokens(), 96u);
  }
}

// ---- What is not shared

TEST(KvCacheTest, WhoDoesNotPublishOrUseTheCacheIsNeverFound) {
  TestEngine engine(20);
  const Text text = MakeText(40);
  {
    const Sequence sequence = engine.Run(text, {.publish = false});
    EXPECT_EQ(sequence.num_published(), 0u);
    EXPECT_FALSE(engine.Lookup(text).producer());
  }
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 0u);
  {
    Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text, .use_cache = false});
    Sequence sequence = engine.Admit(std::move(lease));
    engine.Step(sequence, text, 40);
    EXPECT_FALSE(engine.Lookup(text).producer());
  }
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 0u);
  EXPECT_TRUE(engine.IsEmptyOnceDropped());
}

TEST(KvCacheTest, BlocksThatAreNotRowIndependentAreReusedWhole) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup()};
  options.groups[0].row_independent = false;
  TestEngine engine(20, options);
  const Text text = MakeText(40), other = PartingAt(text, 30);
  { const Sequence sequence = engine.Run(text); }
  EXPECT_EQ(engine.bytes().cached, 2 * kBlockBytes);  // no tail
  Lease lease = engine.Lookup(other);
  EXPECT_EQ(lease.num_ram_tokens(), 16u);
  EXPECT_EQ(lease.num_partial_tokens(), 0u);
  ASSERT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(lease.misses()[0].position, 16u);
  EXPECT_EQ(lease.misses()[0].differs_at, 30u);
}

TEST(KvCacheTest, MaxHitCutsToRowsOfABlock) {
  TestEngine engine(20);
  const Text text = MakeText(48);
  { const Sequence sequence = engine.Run(text); }
  for (const size_t max_hit : {0u, 1u, 15u, 16u, 31u, 47u, 48u}) {
    Lease lease = engine.cache->Lookup({.ns = engine.ns, .tokens = text, .max_hit = max_hit});
    EXPECT_EQ(lease.num_ram_tokens(), max_hit / 16 * 16);
    EXPECT_EQ(lease.num_partial_tokens(), max_hit % 16);
    Sequence sequence = engine.Admit(std::move(lease));
    EXPECT_TRUE(engine.Holds(sequence, text, max_hit));
    engine.cache->CheckInvariants();
  }
}

}  // namespace
}  // namespace kvern::kv
