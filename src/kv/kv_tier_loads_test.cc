// Text that comes back from a tier: slow, out of order, damaged, of somebody else, or not at all.
// Whatever the tier does, nobody reads a row that is not his (rules K4 and K12).
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"
#include "kv/tier/memory.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = TestEngine::kBlockBytes;

KvCacheOptions On(MemoryTier& tier, std::vector<GroupSpec> groups = {TestEngine::FullGroup()}) {
  KvCacheOptions options;
  options.groups = std::move(groups);
  options.tier = &tier;
  return options;
}

void Settle(TestEngine& engine, MemoryTier& tier) {
  while (tier.num_under_way() > 0) engine.cache->PollTier();
}

// Computes a text, lets the tier have it, and forgets it in RAM.
void StoreAndForget(TestEngine& engine, MemoryTier& tier, const Text& text) {
  { const Sequence sequence = engine.Run(text); }
  Settle(engine, tier);
  engine.cache->DropCached();
}

LoadProgress Load(TestEngine& engine, Lease& lease) {
  CHECK(engine.cache->StartLoad(lease).ok());
  LoadProgress progress = engine.cache->Poll(lease);
  while (!progress.done) progress = engine.cache->Poll(lease);
  return progress;
}

uint64_t NumRefused(const TestEngine& engine) {
  const auto refused = engine.cache->stats().records_refused;
  return std::accumulate(refused.begin(), refused.end(), uint64_t{0});
}

class KvTierLoadsTest : public testing::Test {
 protected:
  void TearDown() override {
    Settle(engine, tier);
    EXPECT_TRUE(engine.IsEmptyOnceDropped());
  }

  MemoryTier tier{MemoryTierOptions{.max_latency_polls = 5, .reorder = true, .seed = 7}};
  TestEngine engine{40, On(tier)};
  const Text text = MakeText(70);
};

TEST_F(KvTierLoadsTest, WhatRamForgotComesBackFromTheTier) {
  StoreAndForget(engine, tier, text);
  Lease lease = engine.Lookup(text);
  EXPECT_EQ(lease.num_ram_tokens(), 0u);
  EXPECT_EQ(lease.num_tier_tokens(), 64u);
  const LoadProgress progress = Load(engine, lease);
  EXPECT_EQ(progress.blocks, std::vector<LoadState>(4, LoadState::kLoaded));
  EXPECT_EQ(engine.cache->Install(lease), 64u);
  engine.cache->CheckInvariants();
  EXPECT_EQ(lease.num_ram_tokens(), 64u);
  EXPECT_EQ(lease.num_tier_tokens(), 0u);
  const Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.Holds(sequence, text, 64));
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.tier, 64u);
  EXPECT_EQ(stats.prompts.ram, 0u);
  EXPECT_EQ(stats.prompts.hit() + stats.prompts.missed(), 2 * 70u);
  EXPECT_EQ(stats.blocks_loaded, 4u);
  EXPECT_EQ(stats.loads_started, 1u);
}

// peer: LMCache#562 LMCache#2840 sglang#27619
TEST_F(KvTierLoadsTest, ANewProcessFindsWhatTheOldOneStored) {
  StoreAndForget(engine, tier, text);
  TestEngine next(40, On(tier));
  Lease lease = next.Lookup(text);
  EXPECT_EQ(lease.num_tier_tokens(), 64u);
  Load(next, lease);
  EXPECT_EQ(next.cache->Install(lease), 64u);
  EXPECT_TRUE(next.Holds(next.Admit(std::move(lease)), text, 64));
}

// ---- Failures

// peer: dynamo#15079 vllm#49250 llm-d-kv-cache#514
TEST_F(KvTierLoadsTest, AFailedLoadIsAMissFromThereOnAndNeverComplete) {
  StoreAndForget(engine, tier, text);
  Lease lease = engine.Lookup(text);
  tier.FaultAt(tier.num_operations() + 2, TierFault::kFail);
  const LoadProgress progress = Load(engine, lease);
  EXPECT_EQ(progress.blocks[1], LoadState::kLoaded);
  EXPECT_EQ(progress.blocks[2], LoadState::kFailed);
  EXPECT_FALSE(progress.failure.empty());
  EXPECT_EQ(engine.cache->Install(lease), 32u);
  EXPECT_EQ(lease.num_ram_tokens(), 32u);
  ASSERT_EQ(lease.misses().size(), 2u);
  EXPECT_EQ(lease.misses()[0].reason, MissReason::kTierFailed);
  EXPECT_EQ(lease.misses()[0].position, 32u);
  EXPECT_EQ(lease.misses()[0].num_tokens, 32u);
  EXPECT_EQ(lease.misses()[0].cause, progress.failure);
  EXPECT_EQ(lease.misses()[1].num_tokens, 6u);
  Sequence sequence = engine.Admit(std::move(lease));
  engine.Step(sequence, text, 70);
  EXPECT_TRUE(engine.Holds(sequence, text, 70));
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.tier, 32u);
  EXPECT_EQ(stats.prompts.miss[static_cast<size_t>(MissReason::kTierFailed)], 32u);
  EXPECT_EQ(stats.blocks_failed, 1u);
}

// peer: LMCache#4385 LMCache#4492 Mooncake#2086 sglang#27504 TensorRT-LLM#8813 vllm#54363
TEST_F(KvTierLoadsTest, RecordsOfOthersAndDamagedOnesAreRefusedAndForgotten) {
  const Text other = MakeText(70, 4000);
  StoreAndForget(engine, tier, other);
  uint64_t num_refused = 0;
  for (const TierFault fault :
       {TierFault::kOtherRecord, TierFault::kDamage, TierFault::kTruncate}) {
    for (uint64_t block = 0; block < 4; ++block) {
      StoreAndForget(engine, tier, text);
      Lease lease = engine.Lookup(text);
      ASSERT_EQ(lease.num_tier_tokens(), 64u);
      tier.FaultAt(tier.num_operations() + block, fault);
      const LoadProgress progress = Load(engine, lease);
      EXPECT_EQ(progress.blocks[block], LoadState::kFailed);
      EXPECT_EQ(NumRefused(engine), ++num_refused);
      EXPECT_EQ(engine.cache->Install(lease), 16 * block);
      Sequence sequence = engine.Admit(std::move(lease));
      EXPECT_TRUE(engine.Holds(sequence, text, 16 * block));
      engine.Step(sequence, text, 64);
      EXPECT_TRUE(engine.Holds(sequence, text, 64));
      engine.cache->CheckInvariants();
    }
  }
}

// peer: sglang#31108
TEST_F(KvTierLoadsTest, ARecordThatIsGoneBetweenTheQuestionAndTheLoadIsAMiss) {
  StoreAndForget(engine, tier, text);
  Lease lease = engine.Lookup(text);
  tier.FaultAt(tier.num_operations(), TierFault::kLose);
  Load(engine, lease);
  EXPECT_EQ(engine.cache->Install(lease), 0u);
  EXPECT_EQ(lease.num_ram_tokens(), 0u);
  EXPECT_EQ(lease.num_tier_tokens(), 0u);
  EXPECT_FALSE(engine.cache->StartLoad(lease).ok());  // the request goes on without the tier
}

// peer: LMCache#4991
TEST_F(KvTierLoadsTest, AFailedStoreIsNotFound) {
  tier.FaultAt(1, TierFault::kFail);
  StoreAndForget(engine, tier, text);
  EXPECT_EQ(engine.Lookup(text).num_tier_tokens(), 16u);
}

// A store that is under way is not there yet.
// peer: vllm#45704
TEST_F(KvTierLoadsTest, AStoreThatIsUnderWayIsNotFound) {
  tier.Stall();
  { const Sequence sequence = engine.Run(text); }
  engine.cache->DropCached();
  EXPECT_EQ(engine.Lookup(text).num_tier_tokens(), 0u);
  { const Sequence sequence = engine.Run(MakeText(400, 9000)); }  // the memory is another's now
  tier.Resume();
  Settle(engine, tier);
  Lease lease = engine.Lookup(text);
  EXPECT_EQ(lease.num_tier_tokens(), 64u);
  Load(engine, lease);
  engine.cache->Install(lease);
  EXPECT_TRUE(engine.Holds(engine.Admit(std::move(lease)), text, 64));
}

// ---- Isolation

// peer: sglang#26747 sglang#37160 vllm#44701
TEST_F(KvTierLoadsTest, TenantsAndAdaptersDoNotFindEachOthersRecords) {
  StoreAndForget(engine, tier, text);
  NamespaceSpec adapter, tenant;
  adapter.adapter = tenant.tenant = "a";
  for (const NamespaceSpec& spec : {adapter, tenant}) {
    const NamespaceId ns = *engine.cache->OpenNamespace(spec);
    EXPECT_EQ(engine.cache->Lookup({.ns = ns, .tokens = text}).num_tier_tokens(), 0u);
  }
}

// peer: sglang#24758 sglang#26792 dynamo#14416 vllm#9744
TEST_F(KvTierLoadsTest, OtherWeightsNumericsOrLayoutsDoNotFindOldRecords) {
  StoreAndForget(engine, tier, text);
  NamespaceSpec weights, numerics;
  weights.fingerprint = {{.name = "weights", .value = uint64_t{2}}};
  numerics.numerics_version = 3;
  for (const NamespaceSpec& spec : {weights, numerics}) {
    const NamespaceId ns = *engine.cache->OpenNamespace(spec);
    EXPECT_EQ(engine.cache->Lookup({.ns = ns, .tokens = text}).num_tier_tokens(), 0u);
  }
  TestEngine other(40, On(tier, {TestEngine::FullGroup(), TestEngine::WindowGroup(64)}));
  EXPECT_EQ(other.Lookup(text).num_tier_tokens(), 0u);
}

// ---- Time

TEST_F(KvTierLoadsTest, ALoadCancelledWhileItsIoIsUnderWayHarmsNobody) {
  StoreAndForget(engine, tier, text);
  tier.Stall();
  {
    Lease lease = engine.Lookup(text);
    ASSERT_TRUE(engine.cache->StartLoad(lease).ok());
    EXPECT_EQ(engine.bytes().reserved, 4 * kBlockBytes);
    EXPECT_FALSE(engine.cache->Poll(lease).done);
  }
  EXPECT_EQ(tier.num_under_way(), 4u);
  engine.cache->CheckInvariants();
  const Text others = MakeText(39 * 16, 5000);
  Sequence sequence = engine.Run(others);  // takes all the memory while the tier still writes
  tier.Resume();
  Settle(engine, tier);
  EXPECT_TRUE(engine.Holds(sequence, others, 39 * 16));
  EXPECT_EQ(engine.cache->stats().blocks_loaded, 0u);
  { const Sequence gone = std::move(sequence); }
  Lease again = engine.Lookup(text);
  Load(engine, again);
  EXPECT_EQ(engine.cache->Install(again), 64u);
}

// peer: LMCache#987 LMCache#1034 LMCache#1756
TEST_F(KvTierLoadsTest, ALeaseThatEndsAtAnyMomentOfItsLoadLeavesNothing) {
  StoreAndForget(engine, tier, text);
  for (int num_polls = 0; num_polls < 7; ++num_polls) {
    {
      Lease lease = engine.Lookup(text);
      ASSERT_TRUE(engine.cache->StartLoad(lease).ok());
      for (int i = 0; i < num_polls; ++i) engine.cache->Poll(lease);
      engine.cache->CheckInvariants();
    }
    engine.cache->CheckInvariants();
    Settle(engine, tier);
    EXPECT_EQ(engine.bytes().free, 40 * kBlockBytes);
  }
}

TEST_F(KvTierLoadsTest, InstallTakesWhatHasArrivedSoFar) {
  StoreAndForget(engine, tier, text);
  Lease lease = engine.Lookup(text);
  ASSERT_TRUE(engine.cache->StartLoad(lease).ok());
  size_t num_ready = 0;
  while (num_ready == 0) {
    const LoadProgress progress = engine.cache->Poll(lease);
    while (num_ready < 4 && progress.blocks[num_ready] == LoadState::kLoaded) ++num_ready;
  }
  EXPECT_EQ(engine.cache->Install(lease), 16 * num_ready);
  engine.cache->CheckInvariants();
  EXPECT_EQ(lease.num_ram_tokens(), 16 * num_ready);
  for (const Miss& miss : lease.misses()) EXPECT_NE(miss.reason, MissReason::kTierFailed);
  EXPECT_TRUE(engine.Holds(engine.Admit(std::move(lease)), text, 16 * num_ready));
}

// peer: vllm#44882
TEST_F(KvTierLoadsTest, TheSecondWaitsForTheLoadOfTheFirst) {
  StoreAndForget(engine, tier, text);
  Lease a = engine.Lookup(text), b = engine.Lookup(text);
  EXPECT_FALSE(b.producer());
  ASSERT_TRUE(engine.cache->StartLoad(a).ok());
  ASSERT_TRUE(b.producer());  // since the lookup
  EXPECT_FALSE(b.producer()->sequence);
  auto waiter = engine.cache->Wait(b, 0);
  ASSERT_TRUE(waiter.ok());
  while (!engine.cache->Poll(a).done) {
  }
  EXPECT_EQ(engine.cache->Install(a), 64u);
  const auto events = engine.cache->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kReady);
  const Sequence second = engine.Admit(engine.cache->Retry(std::move(waiter).value()));
  const Sequence first = engine.Admit(std::move(a));
  EXPECT_EQ(first.View({}).blocks[3], second.View({}).blocks[3]);
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.loads_started, 1u);
  EXPECT_EQ(stats.prompts.tier, 64u);
  EXPECT_EQ(stats.prompts.in_flight, 64u);
}

TEST_F(KvTierLoadsTest, WhoWaitsForALoadThatIsGivenUpTakesOver) {
  StoreAndForget(engine, tier, text);
  std::optional<Lease> a(engine.Lookup(text));
  ASSERT_TRUE(engine.cache->StartLoad(*a).ok());
  Lease b = engine.Lookup(text);
  auto waiter = engine.cache->Wait(b, 0);
  ASSERT_TRUE(waiter.ok());
  a.reset();
  const auto events = engine.cache->TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kTakeOver);
  Lease retried = engine.cache->Retry(std::move(waiter).value());
  EXPECT_EQ(retried.num_tier_tokens(), 64u);
  Load(engine, retried);
  EXPECT_EQ(engine.cache->Install(retried), 64u);
}

// Whoever does not care to wait loads a copy of his own; one remains.
TEST_F(KvTierLoadsTest, ConcurrentLoadsOfOnePrefixLeaveOneCopy) {
  StoreAndForget(engine, tier, text);
  Lease a = engine.Lookup(text), b = engine.Lookup(text);
  Load(engine, a);
  Load(engine, b);
  EXPECT_EQ(engine.cache->Install(a), 64u);
  EXPECT_EQ(engine.cache->Install(b), 64u);
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.bytes().active, 4 * kBlockBytes);
  EXPECT_EQ(engine.cache->stats().blocks_merged, 4u);
  const Sequence first = engine.Admit(std::move(a)), second = engine.Admit(std::move(b));
  EXPECT_EQ(first.View({}).blocks[3], second.View({}).blocks[3]);
  EXPECT_EQ(engine.Lookup(text).num_tier_tokens(), 0u);  // a third has nothing to load
}

TEST_F(KvTierLoadsTest, WhatWasComputedDuringTheLoadIsMergedWithIt) {
  StoreAndForget(engine, tier, text);
  Lease lease = engine.Lookup(text);
  ASSERT_TRUE(engine.cache->StartLoad(lease).ok());
  Sequence sequence = engine.Run(text);  // does not care to wait
  while (!engine.cache->Poll(lease).done) {
  }
  engine.cache->Install(lease);
  engine.cache->CheckInvariants();
  EXPECT_EQ(lease.num_ram_tokens(), 64u);
  EXPECT_EQ(engine.bytes().active, 5 * kBlockBytes);
  EXPECT_EQ(engine.cache->stats().one_answer_violations, 0u);
}

TEST_F(KvTierLoadsTest, ALoadWithoutRoomIsRefusedAndTheLeaseStays) {
  StoreAndForget(engine, tier, text);
  const Text others = MakeText(37 * 16, 5000);
  std::optional<Sequence> running(engine.Run(others));
  Lease lease = engine.Lookup(text);
  EXPECT_EQ(engine.cache->StartLoad(lease).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(lease.num_tier_tokens(), 64u);
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.bytes().reserved, 0u);
  running.reset();
  Load(engine, lease);
  EXPECT_EQ(engine.cache->Install(lease), 64u);
}

TEST(KvTierTest, MoreBlocksThanBuffersComeOneAfterTheOther) {
  MemoryTier tier({.max_latency_polls = 3, .reorder = true, .seed = 3});
  KvCacheOptions options = On(tier);
  options.tier_io_blocks = 2;
  TestEngine engine(40, options);
  const Text text = MakeText(160);
  {
    Sequence sequence = engine.Admit(engine.Lookup(text));
    for (size_t end = 16; end <= 160; end += 16) {
      engine.Step(sequence, text, end);
      Settle(engine, tier);
    }
  }
  engine.cache->DropCached();
  Lease lease = engine.Lookup(text);
  ASSERT_EQ(lease.num_tier_tokens(), 160u);
  Load(engine, lease);
  EXPECT_EQ(engine.cache->Install(lease), 160u);
  EXPECT_TRUE(engine.Holds(engine.Admit(std::move(lease)), text, 160));
}

// peer: vllm#41515 transformers#48947
TEST(KvTierTest, ASecondTurnComesBackFromTheTierInAHybridModel) {
  MemoryTier tier({});
  TestEngine engine(60, On(tier, {TestEngine::FullGroup(), TestEngine::WindowGroup(20),
                                  TestEngine::StateGroup()}));
  const Text first = MakeText(64), second = MakeText(100);
  {
    Sequence sequence = engine.Admit(engine.Lookup(first));
    engine.StepByBlocks(sequence, first);
  }
  Settle(engine, tier);
  engine.cache->DropCached();
  Lease lease = engine.Lookup(second);
  ASSERT_EQ(lease.num_tier_tokens(), 64u);
  const LoadProgress progress = Load(engine, lease);
  EXPECT_TRUE(progress.failure.empty()) << progress.failure;
  EXPECT_EQ(engine.cache->stats().blocks_loaded, 4 + 2 + 1u);  // what no query sees stays there
  EXPECT_EQ(engine.cache->Install(lease), 64u);
  engine.cache->CheckInvariants();
  Sequence sequence = engine.Admit(std::move(lease));
  EXPECT_TRUE(engine.HoldsAll(sequence, first, 64));
  engine.StepByBlocks(sequence, second);
  EXPECT_TRUE(engine.HoldsAll(sequence, second, 100));
}

TEST(KvTierTest, RecordsOfAnotherKeyAreNotAuthentic) {
  MemoryTier tier({});
  KvCacheOptions options = On(tier);
  options.mac_key.emplace().bytes[0] = std::byte{1};
  const Text text = MakeText(32);
  {
    TestEngine engine(20, options);
    StoreAndForget(engine, tier, text);
  }
  options.mac_key->bytes[0] = std::byte{2};
  TestEngine engine(20, options);
  Lease lease = engine.Lookup(text);
  ASSERT_EQ(lease.num_tier_tokens(), 32u);
  Load(engine, lease);
  EXPECT_EQ(engine.cache->Install(lease), 0u);
  EXPECT_EQ(
      engine.cache->stats().records_refused[static_cast<size_t>(RecordRefusal::kNotAuthentic)], 2u);
}

// ---- Export and import

TEST(KvTierTest, AnImportThatDisagreesWithTheTreeLeavesNothingBehindTheDifference) {
  TestEngine from(20), to(20);
  const Text text = MakeText(64);
  { const Sequence sequence = from.Run(text); }
  const auto records = from.cache->Export(from.ns, text);
  {
    // Wrong from the second block on.
    Text wrong = text;
    wrong[20] = TokenId{99};
    Sequence sequence = to.Admit(to.Lookup(text));
    ASSERT_TRUE(to.Compute(sequence, text, 64).ok());
    to.Write(sequence, wrong, 20, 64);
    sequence.Commit(64);
  }
  const auto imported = to.cache->Import(to.ns, records);
  to.cache->CheckInvariants();
  EXPECT_EQ(to.cache->stats().one_answer_violations, 1u);
  EXPECT_EQ(to.Lookup(text).num_ram_tokens(), 16u);
  // What comes after the difference must not have moved to its place.
  Text moved = MakeText(16);
  moved.insert(moved.end(), text.begin() + 32, text.begin() + 48);
  EXPECT_EQ(to.Lookup(moved).num_ram_tokens(), 16u);
}

TEST(KvTierTest, AnImportThatIsRefusedHalfwayKeepsWhatCameBeforeAndLeaksNothing) {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(40)};
  TestEngine from(40, options);
  const Text text = MakeText(64);
  { const Sequence sequence = from.Run(text); }
  const auto records = from.cache->Export(from.ns, text);
  ASSERT_EQ(records.size() % 8, 0u);
  for (size_t record = 0; record < 8; ++record) {
    TestEngine to(40, options);
    auto damaged = records;
    damaged[(record + 1) * records.size() / 8 - 1] ^= std::byte{1};  // in its payload or checksum
    const auto imported = to.cache->Import(to.ns, damaged);
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(imported.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(NumRefused(to), 1u);
    to.cache->CheckInvariants();
    const Sequence sequence = to.Run(text);
    EXPECT_TRUE(to.HoldsAll(sequence, text, 64));
    to.cache->CheckInvariants();
  }
}

TEST(KvTierTest, WhatIsExportedCanBeImportedElsewhere) {
  const std::vector<GroupSpec> groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(20),
                                         TestEngine::StateGroup()};
  KvCacheOptions options;
  options.groups = groups;
  TestEngine from(60, options), to(60, options);
  const Text text = MakeText(64);
  {
    Sequence sequence = from.Admit(from.Lookup(text));
    from.StepByBlocks(sequence, text);
  }
  const auto records = from.cache->Export(from.ns, text);
  const auto imported = to.cache->Import(to.ns, records);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(*imported, 4u);
  to.cache->CheckInvariants();
  const Sequence sequence = to.Admit(to.Lookup(text));
  EXPECT_EQ(sequence.length(), 64u);
  EXPECT_TRUE(to.HoldsAll(sequence, text, 64));
  EXPECT_EQ(*to.cache->Import(to.ns, records), 4u);  // again: all merged
  EXPECT_TRUE(to.HoldsAll(sequence, text, 64));
}

}  // namespace
}  // namespace kvern::kv
