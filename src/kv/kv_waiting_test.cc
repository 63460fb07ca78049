// Waiting for what another sequence is computing: nobody computes it twice, nobody waits for
// nothing (rule K6).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

using Kind = Event::Kind;

// The first `shared` tokens of MakeText(), then the waiter's own.
Text Sharing(size_t shared, uint32_t own, size_t size) {
  Text text = MakeText(size);
  for (size_t i = shared; i < size; ++i) text[i] = TokenId{own + static_cast<uint32_t>(i)};
  return text;
}

class KvWaitingTest : public testing::Test {
 protected:
  Waiter Wait(const Text& text, int priority = 0) {
    Lease lease = engine.Lookup(text);
    auto waiter = engine.cache->Wait(lease, priority);
    CHECK(waiter.ok());
    return std::move(waiter).value();
  }

  // The one event that there is.
  Event TheEvent() {
    const std::vector<Event> events = engine.cache->TakeEvents();
    CHECK(events.size() == 1);
    return events[0];
  }

  bool HasEvents() { return !engine.cache->TakeEvents().empty(); }

  void TearDown() override { EXPECT_TRUE(engine.IsEmptyOnceDropped()); }

  TestEngine engine{60};
  const Text text = MakeText(64);
};

// peer: llama.cpp#27616 llama.cpp#26204
TEST_F(KvWaitingTest, ManyWithOnePromptComputeItOnce) {
  Sequence first = engine.Admit(engine.Lookup(text));
  std::vector<Waiter> waiters;
  std::vector<Text> texts;
  for (uint32_t i = 0; i < 7; ++i) texts.push_back(Sharing(64, 1000 * (i + 1), 80));
  for (const Text& other : texts) {
    const Lease lease = engine.Lookup(other);
    ASSERT_TRUE(lease.producer());
    EXPECT_EQ(lease.producer()->sequence, first.id());
    EXPECT_EQ(lease.producer()->end, 64u);
    waiters.push_back(Wait(other));
  }
  engine.Step(first, text, 48);
  EXPECT_FALSE(HasEvents());
  engine.Step(first, text, 64);
  EXPECT_EQ(engine.cache->TakeEvents().size(), 7u);
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 7; ++i) {
    Lease lease = engine.cache->Retry(std::move(waiters[i]));
    EXPECT_EQ(lease.num_ram_tokens(), 64u);
    sequences.push_back(engine.Admit(std::move(lease)));
    EXPECT_TRUE(engine.Holds(sequences[i], texts[i], 64));
    engine.cache->CheckInvariants();
  }
  EXPECT_EQ(engine.bytes().active, 4 * TestEngine::kBlockBytes);
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.in_flight, 7 * 64u);
  EXPECT_EQ(stats.prompts.ram, 0u);
  EXPECT_EQ(stats.prompts.missed(), 64 + 7 * 16u);
  EXPECT_EQ(stats.num_prompts, 8u);
}

TEST_F(KvWaitingTest, AProducerThatIsCancelledLeavesItsPlaceToTheBestWaiter) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  engine.Step(*first, text, 16);
  Waiter low = Wait(text, 1), high = Wait(text, 5), later = Wait(text, 5);
  first.reset();
  const Event event = TheEvent();
  EXPECT_EQ(event.kind, Kind::kTakeOver);
  EXPECT_EQ(event.waiter, high.id());
  EXPECT_EQ(low.producer(), std::nullopt);
  engine.cache->CheckInvariants();

  Lease lease = engine.cache->Retry(std::move(high));
  EXPECT_EQ(lease.num_ram_tokens(), 16u);
  EXPECT_FALSE(lease.producer());
  Sequence second = engine.Admit(std::move(lease));
  EXPECT_EQ(low.producer(), second.id());
  EXPECT_EQ(later.producer(), second.id());
  engine.Step(second, text, 64);
  const std::vector<Event> events = engine.cache->TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].waiter, later.id());  // the best first
  EXPECT_EQ(events[1].kind, Kind::kReady);
  EXPECT_EQ(engine.cache->Retry(std::move(low)).num_ram_tokens(), 64u);
  EXPECT_EQ(engine.cache->stats().take_overs, 1u);
}

TEST_F(KvWaitingTest, AProducerThatIsPreemptedWaitsForWhoTookOver) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text), {.priority = 0}));
  engine.Step(*first, text, 20);
  Waiter waiter = Wait(text, 3);
  first.reset();
  EXPECT_EQ(TheEvent().kind, Kind::kTakeOver);
  Sequence second = engine.Admit(engine.cache->Retry(std::move(waiter)), {.priority = 3});
  EXPECT_EQ(second.length(), 20u);  // what the first had computed, tail included

  Lease lease = engine.Lookup(text);
  ASSERT_TRUE(lease.producer());
  EXPECT_EQ(lease.producer()->sequence, second.id());
  auto resumed = engine.cache->Wait(lease, 0);
  ASSERT_TRUE(resumed.ok());
  engine.Step(second, text, 64);
  EXPECT_EQ(TheEvent().waiter, resumed->id());
  const Sequence again =
      engine.Admit(engine.cache->Retry(std::move(*resumed)), {.is_resume = true});
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.num_prompts, 2u);
  EXPECT_EQ(stats.num_resumes, 1u);
  EXPECT_EQ(stats.resumes.ram, 16u);
  EXPECT_EQ(stats.resumes.in_flight, 47u);
  EXPECT_EQ(stats.resumes.miss[static_cast<size_t>(MissReason::kLogitsNeeded)], 1u);
}

TEST_F(KvWaitingTest, AProducerThatFailsPublishesNothingOfItsStep) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  Waiter waiter = Wait(text);
  ASSERT_TRUE(engine.Compute(*first, text, 64).ok());  // and then its step fails
  first.reset();
  EXPECT_EQ(TheEvent().kind, Kind::kTakeOver);
  Lease lease = engine.cache->Retry(std::move(waiter));
  EXPECT_EQ(lease.num_ram_tokens() + lease.num_partial_tokens(), 0u);
  Sequence second = engine.Admit(std::move(lease));
  engine.Step(second, text, 64);
  EXPECT_TRUE(engine.Holds(second, text, 64));
}

TEST_F(KvWaitingTest, AProducerThatRollsBackOrLeavesItsPromptIsOneNoMore) {
  const Text other = Sharing(40, 900, 64);
  for (const bool by_truncating : {true, false}) {
    Sequence first = engine.Admit(engine.Lookup(text));
    engine.Step(first, text, 32);
    Waiter waiter = Wait(text);
    if (by_truncating) {
      ASSERT_TRUE(first.Truncate(30).ok());
    } else {
      ASSERT_TRUE(engine.Compute(first, other, 48).ok());
    }
    EXPECT_EQ(TheEvent().kind, Kind::kTakeOver);
    {
      const Lease lease = engine.Lookup(text);
      ASSERT_TRUE(lease.producer());
      EXPECT_FALSE(lease.producer()->sequence);  // who is to take over is not admitted yet
    }
    Sequence second = engine.Admit(engine.cache->Retry(std::move(waiter)));
    EXPECT_GE(second.length(), 32u);
    engine.cache->CheckInvariants();
  }
}

TEST_F(KvWaitingTest, AWaiterFasterThanItsProducerGoesOnAlone) {
  Sequence slow = engine.Admit(engine.Lookup(text));
  engine.Step(slow, text, 16);
  Waiter impatient = Wait(text), patient = Wait(text);
  Sequence fast = engine.Admit(engine.cache->Retry(std::move(impatient)));
  engine.Step(fast, text, 64);
  ASSERT_TRUE(engine.Compute(slow, text, 64).ok());
  slow.Commit(64);
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.cache->stats().blocks_merged, 3u);
  EXPECT_EQ(engine.bytes().active, 4 * TestEngine::kBlockBytes);
  EXPECT_EQ(TheEvent().waiter, patient.id());
  EXPECT_TRUE(engine.Holds(slow, text, 64));
}

TEST_F(KvWaitingTest, AChainOfWaitersPassesOnWhoeverGivesUp) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  std::vector<std::optional<Waiter>> waiters(4);
  for (auto& waiter : waiters) waiter.emplace(Wait(text));
  first.reset();
  for (size_t i = 0; i < 4; ++i) {
    const Event event = TheEvent();
    EXPECT_EQ(event.kind, Kind::kTakeOver);
    EXPECT_EQ(event.waiter, waiters[i]->id());
    if (i % 2 == 0) {
      waiters[i].reset();
    } else {
      // Looks up, and gives up then.
      const Lease lease = engine.cache->Retry(std::move(*waiters[i]));
      waiters[i].reset();
      EXPECT_FALSE(HasEvents());
    }
    engine.cache->CheckInvariants();
  }
  EXPECT_FALSE(HasEvents());
  EXPECT_FALSE(engine.Lookup(text).producer());
}

TEST_F(KvWaitingTest, AChainOfPromptsWaitsEachForTheOneThatHasMost) {
  const Text b = Sharing(64, 1000, 96);
  Text c = b;
  c.resize(112);
  for (size_t i = 96; i < 112; ++i) c[i] = TokenId{77};
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  std::optional<Sequence> second(engine.Admit(engine.Lookup(b)));  // does not care to wait
  Lease lease = engine.Lookup(c);
  ASSERT_TRUE(lease.producer());
  EXPECT_EQ(lease.producer()->sequence, second->id());
  EXPECT_EQ(lease.producer()->end, 96u);
  Waiter waiter = *engine.cache->Wait(lease, 0);
  second.reset();
  EXPECT_EQ(TheEvent().kind, Kind::kTakeOver);
  Lease again = engine.cache->Retry(std::move(waiter));
  ASSERT_TRUE(again.producer());  // the first still computes what both begin with
  EXPECT_EQ(again.producer()->sequence, first->id());
  EXPECT_EQ(again.producer()->end, 64u);
  Waiter next = *engine.cache->Wait(again, 0);
  engine.Step(*first, text, 64);
  EXPECT_EQ(TheEvent().kind, Kind::kReady);
  Sequence third = engine.Admit(engine.cache->Retry(std::move(next)));
  EXPECT_EQ(third.length(), 64u);
  engine.Step(third, c, 112);
  EXPECT_TRUE(engine.Holds(third, c, 112));
  const PromptSplit split = engine.cache->stats().prompts;
  EXPECT_EQ(split.in_flight, 64u);
  EXPECT_EQ(split.hit() + split.missed(), 64 + 96 + 112u);
}

TEST_F(KvWaitingTest, WaitersOfDifferentPartsElectALeaderForEachPart) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  engine.Step(*first, text, 16);
  const Text half = Sharing(32, 3000, 64), other = Sharing(40, 4000, 64);
  Waiter whole = Wait(text, 9), a = Wait(half, 5), b = Wait(other, 4);
  first.reset();
  EXPECT_EQ(TheEvent().waiter, whole.id());
  Sequence leader = engine.Admit(engine.cache->Retry(std::move(whole)));
  engine.Step(leader, text, 32);
  // Both share exactly two blocks with the leader.
  EXPECT_EQ(engine.cache->TakeEvents().size(), 2u);
  EXPECT_EQ(engine.cache->Retry(std::move(a)).num_ram_tokens(), 32u);
  EXPECT_EQ(engine.cache->Retry(std::move(b)).num_ram_tokens(), 32u);
}

TEST_F(KvWaitingTest, ALowProducerWithAHighWaiterCountsAsHigh) {
  Sequence producer = engine.Admit(engine.Lookup(text), {.priority = -3});
  EXPECT_EQ(producer.effective_priority(), -3);
  {
    const Waiter high = Wait(text, 7), low = Wait(text, -9);
    EXPECT_EQ(producer.effective_priority(), 7);
  }
  EXPECT_EQ(producer.effective_priority(), -3);  // they have given up
  Waiter again = Wait(text, 2);
  EXPECT_EQ(producer.effective_priority(), 2);
  engine.Step(producer, text, 64);
  EXPECT_EQ(producer.effective_priority(), -3);  // nobody waits for anything more
}

TEST_F(KvWaitingTest, PriorityPassesThroughATakeOver) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text), {.priority = 0}));
  Waiter high = Wait(text, 5), higher_later = Wait(text, 5);
  first.reset();
  EXPECT_EQ(TheEvent().waiter, high.id());
  Sequence second = engine.Admit(engine.cache->Retry(std::move(high)), {.priority = 1});
  EXPECT_EQ(second.effective_priority(), 5);
}

TEST_F(KvWaitingTest, WaitingForNobodyIsAnErrorAndTheLeaseStays) {
  { const Sequence sequence = engine.Run(text); }
  Lease lease = engine.Lookup(text);
  const auto waiter = engine.cache->Wait(lease, 0);
  ASSERT_FALSE(waiter.ok());
  EXPECT_EQ(waiter.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(lease.num_ram_tokens(), 64u);
  EXPECT_TRUE(engine.Holds(engine.Admit(std::move(lease)), text, 64));
}

// Waiters hold no memory: what they wait for can go before they look.
TEST_F(KvWaitingTest, WhatWasReadyMayBeGoneWhenTheWaiterLooks) {
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  Waiter waiter = Wait(text);
  engine.Step(*first, text, 64);
  EXPECT_EQ(TheEvent().kind, Kind::kReady);
  first.reset();
  engine.cache->DropCached();
  Lease lease = engine.cache->Retry(std::move(waiter));
  EXPECT_EQ(lease.num_ram_tokens(), 0u);
  ASSERT_EQ(lease.misses().size(), 1u);
  EXPECT_EQ(lease.misses()[0].reason, MissReason::kEvicted);
  const Sequence second = engine.Run(text);
  EXPECT_TRUE(engine.Holds(second, text, 64));
}

TEST_F(KvWaitingTest, AForkIsAwaitedByNobody) {
  Sequence first = engine.Admit(engine.Lookup(text));
  std::optional<Sequence> fork(first.Fork());
  Waiter waiter = Wait(text);
  fork.reset();
  EXPECT_FALSE(HasEvents());
  EXPECT_EQ(waiter.producer(), first.id());
}

TEST_F(KvWaitingTest, NobodyWaitsForWhoDoesNotPublish) {
  Sequence producer = engine.Admit(engine.Lookup(text), {.publish = false});
  EXPECT_FALSE(engine.Lookup(text).producer());
  std::optional<Sequence> first(engine.Admit(engine.Lookup(text)));
  Waiter a = Wait(text), b = Wait(text);
  first.reset();
  EXPECT_EQ(TheEvent().waiter, a.id());
  // It takes over in name, but will not publish: the next one takes over at once.
  const Sequence silent = engine.Admit(engine.cache->Retry(std::move(a)), {.publish = false});
  EXPECT_EQ(TheEvent().waiter, b.id());
}

}  // namespace
}  // namespace kvern::kv
