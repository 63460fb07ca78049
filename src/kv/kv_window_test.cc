// Groups whose blocks nobody sees for long: sliding windows and recurrent states beside full
// attention (rule K7).
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

constexpr GroupId kWindow{1};
constexpr GroupId kState{1};
constexpr size_t kBlockBytes = TestEngine::kBlockBytes;

KvCacheOptions WithWindow(uint32_t window, uint32_t max_rollback = 0) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(window, max_rollback)};
  return options;
}

KvCacheOptions WithState(uint32_t max_rollback = 0) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::StateGroup(max_rollback)};
  return options;
}

Text PartingAt(Text text, size_t position, uint32_t first = 700) {
  for (size_t i = position; i < text.size(); ++i) {
    text[i] = TokenId{first + static_cast<uint32_t>(i)};
  }
  return text;
}

// Tokens of the first miss for this reason.
size_t MissedFor(const Lease& lease, MissReason reason) {
  size_t num_tokens = 0;
  for (const Miss& miss : lease.misses()) num_tokens += miss.reason == reason ? miss.num_tokens : 0;
  return num_tokens;
}

TEST(KvWindowTest, WhatAWindowNoLongerSeesIsOneZeroBlockAndItsMemoryIsFree) {
  TestEngine engine(60, WithWindow(20));
  const Text text = MakeText(160);
  Sequence sequence = engine.Admit(engine.Lookup(text), {.publish = false});
  for (size_t end = 16; end <= 160; end += 16) engine.Step(sequence, text, end);
  EXPECT_TRUE(engine.HoldsAll(sequence, text, 160));
  const PagedView view = sequence.View(kWindow);
  ASSERT_EQ(view.num_blocks, 10u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(view.blocks[i], view.blocks[0]);
    EXPECT_TRUE(IsZero(view.blocks[i], kBlockBytes));
  }
  EXPECT_NE(view.blocks[8], view.blocks[0]);
  EXPECT_EQ(engine.bytes().active, (10 + 2 + 1) * kBlockBytes);
  engine.cache->CheckInvariants();
}

// peer: transformers#48280
TEST(KvWindowTest, AWindowSlidPastARejectedDraftStillSeesWhatTheRollbackNeeds) {
  TestEngine engine(60, WithWindow(16, /*max_rollback=*/8));
  const Text text = MakeText(200);
  Sequence sequence = engine.Admit(engine.Lookup(text));
  for (size_t round = 0; round < 20; ++round) {
    const size_t length = sequence.length();
    const Text draft = PartingAt(text, length + 3);
    ASSERT_TRUE(engine.Compute(sequence, draft, length + 8).ok());
    sequence.Commit(length + 8);  // and the last five are taken back later
    ASSERT_TRUE(sequence.Truncate(length + 3).ok());
    EXPECT_TRUE(engine.HoldsAll(sequence, text, length + 3));
    engine.cache->CheckInvariants();
  }
  EXPECT_GT(sequence.length(), 3 * 16u);
}

// peer: transformers#48280
TEST(KvWindowTest, ARollbackPastTheWindowIsRefusedAndChangesNothing) {
  TestEngine engine(60, WithWindow(16, /*max_rollback=*/4));
  const Text text = MakeText(96);
  Sequence sequence = engine.Admit(engine.Lookup(text));
  for (size_t end = 16; end <= 96; end += 16) engine.Step(sequence, text, end);
  EXPECT_EQ(sequence.Truncate(40).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(sequence.length(), 96u);
  EXPECT_EQ(sequence.committed(), 96u);
  EXPECT_EQ(sequence.num_published(), 96u);
  EXPECT_TRUE(engine.HoldsAll(sequence, text, 96));
  ASSERT_TRUE(sequence.Truncate(92).ok());
  EXPECT_TRUE(engine.HoldsAll(sequence, text, 92));
  ASSERT_TRUE(sequence.Truncate(0).ok());  // nothing is seen from there
  engine.cache->CheckInvariants();
}

TEST(KvWindowTest, AWaiterJoinsBehindTheLeadersWindow) {
  TestEngine engine(80, WithWindow(20));
  const Text text = MakeText(128), shorter = PartingAt(MakeText(80), 32);
  Sequence leader = engine.Admit(engine.Lookup(text));
  Lease lease = engine.Lookup(shorter);
  ASSERT_TRUE(lease.producer());
  EXPECT_EQ(lease.producer()->end, 32u);
  Waiter waiter = *engine.cache->Wait(lease, 0);
  engine.Step(leader, text, 32);
  ASSERT_EQ(engine.cache->TakeEvents().size(), 1u);
  for (size_t end = 48; end <= 128; end += 16) engine.Step(leader, text, end);
  Lease joined = engine.cache->Retry(std::move(waiter));
  EXPECT_EQ(joined.num_ram_tokens(), 32u);
  Sequence second = engine.Admit(std::move(joined));
  EXPECT_TRUE(engine.HoldsAll(second, text, 32));
  engine.Step(second, shorter, 80);
  EXPECT_TRUE(engine.HoldsAll(second, shorter, 80));
  // Nobody joins there any more: the next step lets go of it.
  const Text more = MakeText(144);
  engine.Step(leader, more, 144);
  engine.cache->CheckInvariants();
}

TEST(KvWindowTest, ALookupStopsAtTheLongestPointThatEveryWindowReaches) {
  TestEngine engine(64, WithWindow(20));  // eight slabs, and seven would do
  const Text text = MakeText(96);
  { const Sequence sequence = engine.Run(text); }  // one step: all window blocks were held
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 96u);
  // Room for one block more is made of those that no query at the end sees.
  const Text fill = MakeText(16 * 26, 5000);
  { const Sequence running = engine.Run(fill, {.publish = false}); }
  EXPECT_GT(engine.cache->stats().evicted_blocks[static_cast<size_t>(EvictionCause::kWindow)], 0u);
  EXPECT_EQ(engine.cache->stats().evicted_blocks[static_cast<size_t>(EvictionCause::kPolicy)], 0u);
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 96u);  // the end is still whole
  const Text branch = PartingAt(text, 16);
  Lease lease = engine.Lookup(branch);
  EXPECT_EQ(lease.num_ram_tokens(), 0u);
  EXPECT_EQ(MissedFor(lease, MissReason::kGroupNotHeld), 16u);
  EXPECT_EQ(MissedFor(lease, MissReason::kOtherToken), 80u);
  EXPECT_EQ(lease.misses()[0].group, kWindow);
  const Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_EQ(sequence.length(), 0u);
  engine.cache->CheckInvariants();
}

// peer: vllm#42948
TEST(KvWindowTest, OneWindowBlockThatIsGoneDoesNotMakeTheWholePromptMiss) {
  TestEngine engine(80, WithWindow(20));
  const Text text = MakeText(64), longer = MakeText(128);
  { const Sequence sequence = engine.Run(text); }
  Sequence sequence = engine.Admit(engine.Lookup(longer));
  EXPECT_EQ(sequence.length(), 64u);
  for (size_t end = 80; end <= 128; end += 16) engine.Step(sequence, longer, end);
  const Text branch = PartingAt(longer, 112);
  Lease lease = engine.Lookup(branch);
  EXPECT_EQ(lease.num_ram_tokens(), 112u);
  EXPECT_TRUE(engine.HoldsAll(engine.Admit(std::move(lease)), longer, 112));
}

// peer: vllm#40696
TEST(KvWindowTest, ShortPromptsHitInHybridModels) {
  KvCacheOptions options = WithWindow(512);
  options.groups.push_back(TestEngine::StateGroup());
  TestEngine engine(60, options);
  const Text text = MakeText(5), longer = MakeText(20);
  { const Sequence sequence = engine.Run(text); }
  Lease lease = engine.Lookup(longer);
  EXPECT_EQ(lease.num_ram_tokens() + lease.num_partial_tokens(), 5u);
  Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.HoldsAll(sequence, longer, 5));
  engine.Step(sequence, longer, 20);
  EXPECT_TRUE(engine.HoldsAll(sequence, longer, 20));
}

TEST(KvWindowTest, AWindowBlockThatANewHolderNeedsIsHeldUntilItEnds) {
  TestEngine engine(16, WithWindow(20));
  const Text text = MakeText(64), fill = MakeText(64, 9000);
  { const Sequence sequence = engine.Run(text); }
  Lease lease = engine.Lookup(text);
  const Sequence other = engine.Run(fill, {.publish = false});  // needs four of each group
  engine.cache->CheckInvariants();
  Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.HoldsAll(sequence, text, 64));
}

TEST(KvWindowTest, AWindowOfOneTokenSeesNothingOfBefore) {
  TestEngine engine(40, WithWindow(1));
  const Text text = MakeText(40);
  { const Sequence sequence = engine.Run(text); }
  Lease lease = engine.Lookup(text);
  EXPECT_EQ(lease.num_ram_tokens() + lease.num_partial_tokens(), 40u);
  Sequence sequence = engine.Admit(std::move(lease));
  const Text longer = MakeText(60);
  engine.Step(sequence, longer, 60);
  engine.cache->CheckInvariants();
}

// ---- States

TEST(KvWindowTest, AStateIsFoundAtThePointsWhereAStepEnded) {
  TestEngine engine(60, WithState());
  const Text text = MakeText(64);
  {
    Sequence sequence = engine.Admit(engine.Lookup(text));
    engine.Step(sequence, text, 32);
    engine.Step(sequence, text, 64);
  }
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 64u);
  const Text branch = PartingAt(text, 50);
  Lease lease = engine.Lookup(branch);
  EXPECT_EQ(lease.num_ram_tokens(), 32u);
  EXPECT_EQ(lease.num_partial_tokens(), 0u);
  EXPECT_EQ(MissedFor(lease, MissReason::kGroupNotHeld), 18u);
  EXPECT_EQ(lease.misses()[0].group, kState);
  EXPECT_EQ(MissedFor(lease, MissReason::kOtherToken), 14u);
  Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.HoldsAll(sequence, text, 32));
  engine.StepByBlocks(sequence, branch);
  EXPECT_TRUE(engine.HoldsAll(sequence, branch, 64));
  engine.cache->CheckInvariants();
}

// Each turn goes on from the end of the one before, wherever in a block that is.
// peer: llama.cpp#22746 llama.cpp#21831 llama.cpp#25913
TEST(KvWindowTest, EveryTurnOfAChatGoesOnFromTheEndOfTheLastInAHybridModel) {
  KvCacheOptions options = WithWindow(20, /*max_rollback=*/4);
  options.groups.push_back(TestEngine::StateGroup(/*max_rollback=*/4));
  TestEngine engine(80, options);
  size_t length = 0;
  for (const size_t turn : {21u, 44u, 60u, 64u, 99u}) {
    const Text text = MakeText(turn);
    Lease lease = engine.Lookup(text);
    EXPECT_EQ(lease.num_ram_tokens() + lease.num_partial_tokens(), length);
    Sequence sequence = engine.Admit(std::move(lease));
    EXPECT_TRUE(length == 0 || engine.HoldsAll(sequence, text, length));
    engine.Step(sequence, text, turn);
    EXPECT_TRUE(engine.HoldsAll(sequence, text, turn));
    length = turn;
    engine.cache->CheckInvariants();
  }
  const PromptSplit split = engine.cache->stats().prompts;
  EXPECT_EQ(split.missed(), 99u);
}

// peer: vllm#53912
TEST(KvWindowTest, ARejectedDraftTakesTheStateBackExactly) {
  TestEngine engine(60, WithState(/*max_rollback=*/4));
  const Text text = MakeText(100);
  Sequence sequence = engine.Admit(engine.Lookup(text));
  engine.Step(sequence, text, 10);
  for (size_t accepted = 0; accepted <= 4; ++accepted) {
    const size_t length = sequence.length();
    ASSERT_TRUE(engine.Compute(sequence, PartingAt(text, length + accepted), length + 4).ok());
    ASSERT_TRUE(sequence.Truncate(length + accepted).ok());
    sequence.Commit(length + accepted);
    EXPECT_TRUE(engine.HoldsAll(sequence, text, length + accepted)) << accepted;
    engine.cache->CheckInvariants();
  }
  // What is committed can be taken back as far, and no farther.
  const size_t length = sequence.length();
  EXPECT_EQ(sequence.Truncate(length - 5).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(sequence.length(), length);
  ASSERT_TRUE(sequence.Truncate(length - 4).ok());
  EXPECT_TRUE(engine.HoldsAll(sequence, text, length - 4));
}

TEST(KvWindowTest, TwoWhoComputedTheSameShareWindowsAndStates) {
  KvCacheOptions options = WithWindow(40);
  options.groups.push_back(TestEngine::StateGroup());
  TestEngine engine(80, options);
  const Text text = MakeText(64);
  Lease lease_a = engine.Lookup(text), lease_b = engine.Lookup(text);
  Sequence a = engine.Admit(std::move(lease_a)), b = engine.Admit(std::move(lease_b));
  engine.StepByBlocks(a, text);
  engine.cache->CheckInvariants();
  engine.StepByBlocks(b, text);
  engine.cache->CheckInvariants();
  EXPECT_TRUE(engine.HoldsAll(a, text, 64) && engine.HoldsAll(b, text, 64));
  EXPECT_EQ(engine.cache->stats().one_answer_violations, 0u);
  for (size_t i = 0; i < 3; ++i) {
    const GroupId group = static_cast<GroupId>(i);
    const PagedView view_a = a.View(group), view_b = b.View(group);
    EXPECT_EQ(view_a.blocks[view_a.num_blocks - 1], view_b.blocks[view_b.num_blocks - 1]) << i;
  }
}

TEST(KvWindowTest, AStateThatWasGoneIsFilledInBySomeoneWhoComputesItAgain) {
  TestEngine engine(60, WithState());
  const Text text = MakeText(64), branch = PartingAt(text, 32);
  { const Sequence sequence = engine.Run(text); }  // one step: one state, at the end
  Lease lease = engine.Lookup(branch);
  EXPECT_EQ(lease.num_ram_tokens(), 0u);
  Sequence sequence = engine.Admit(std::move(lease));
  engine.StepByBlocks(sequence, branch);
  const Text other = PartingAt(text, 32, 5000);
  EXPECT_EQ(engine.Lookup(other).num_ram_tokens(), 32u);
  EXPECT_TRUE(engine.HoldsAll(sequence, branch, 64));
  engine.cache->CheckInvariants();
}

// A slab is of one group, and blocks in use stay where they are: with a block of a text in each
// slab of the full group, the window finds no room there.
TEST(KvWindowTest, RoomAmongTheBlocksOfAnotherGroupIsGatheredOnceTheyAreLetGoOf) {
  TestEngine engine(7 * 8, WithWindow(20));
  const Text text = MakeText((5 + 14) * 16);
  std::optional<Sequence> mine = engine.Admit(engine.Lookup(text));
  std::vector<Sequence> others;
  for (uint32_t i = 0; i < 5; ++i) {
    engine.Step(*mine, text, (i + 1) * 16);
    const Text other = MakeText(7 * 16, 1000 * (i + 1));
    others.push_back(engine.Admit(engine.Lookup(other), {.publish = false}));
    engine.StepByBlocks(others.back(), other);
  }
  others.clear();
  EXPECT_EQ(mine->Reserve(14 * 16).error().code, ErrorCode::kOutOfMemory);
  EXPECT_GT(engine.bytes().free, mine->BytesNeeded(14 * 16));

  mine.reset();
  std::optional<Lease> lease = engine.Lookup(text);
  EXPECT_FALSE(engine.cache->Admit(*lease, {.reserve_tokens = 14 * 16}).ok());
  lease.reset();
  ASSERT_TRUE(engine.cache->MakeRoom(engine.ns, 14).ok());
  engine.cache->CheckInvariants();
  lease = engine.Lookup(text);
  EXPECT_EQ(lease->num_ram_tokens(), 5u * 16);  // it moved
  Sequence sequence = engine.Admit(std::move(*lease), {.reserve_tokens = 14 * 16});
  engine.Step(sequence, text, text.size());
  EXPECT_TRUE(engine.HoldsAll(sequence, text, text.size()));
}

}  // namespace
}  // namespace kvern::kv
