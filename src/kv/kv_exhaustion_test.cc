// The system refuses memory at the n-th allocation, for every n of a scenario: an error, nothing
// changed, nothing leaked; and the same call succeeds as soon as there is memory.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"
#include "kv/tier/memory.h"

namespace kvern::kv {
namespace {

// Everything of a sequence that a caller can see.
struct Picture {
  size_t length, committed, num_published;
  std::vector<std::vector<std::byte*>> blocks;  // by group
  std::vector<std::vector<std::byte>> contents;

  bool operator==(const Picture&) const = default;
};

class Scenario {
 public:
  Scenario(const std::vector<GroupSpec>& groups, size_t refuse_after)
      : tier_({}), engine_(400, Options(groups, &tier_)) {
    engine_.store.refuse_after = refuse_after;
  }

  size_t num_refused() const { return engine_.store.num_refused; }

  void Run() {
    Work();
    while (tier_.num_under_way() > 0) engine_.cache->PollTier();
    EXPECT_TRUE(engine_.IsEmptyOnceDropped());
  }

 private:
  static KvCacheOptions Options(const std::vector<GroupSpec>& groups, Tier* tier) {
    KvCacheOptions options;
    options.groups = groups;
    options.tier = tier;
    return options;
  }

  Picture Look(const Sequence& sequence) const {
    Picture picture{.length = sequence.length(),
                    .committed = sequence.committed(),
                    .num_published = sequence.num_published(),
                    .blocks = {},
                    .contents = {}};
    for (size_t group = 0; group < engine_.cache->options().groups.size(); ++group) {
      const PagedView view = sequence.View(static_cast<GroupId>(group));
      picture.blocks.emplace_back(view.blocks, view.blocks + view.num_blocks);
      for (std::byte* block : picture.blocks.back()) {
        picture.contents.emplace_back(block, block + TestEngine::kBlockBytes);
      }
    }
    return picture;
  }

  std::vector<Picture> LookAtAll() const {
    std::vector<Picture> pictures;
    for (const Sequence* sequence : sequences_) pictures.push_back(Look(*sequence));
    return pictures;
  }

  // A call that may be refused once.
  template <typename Call>
  auto Try(const Call& call) {
    const auto before = LookAtAll();
    const StateCounts bytes = engine_.bytes();
    const KvStats stats = engine_.cache->stats();
    auto result = call();
    if (result.ok()) return result;
    EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
    engine_.cache->CheckInvariants();
    EXPECT_EQ(LookAtAll(), before);
    EXPECT_EQ(engine_.bytes().active, bytes.active);
    EXPECT_EQ(engine_.bytes().reserved, bytes.reserved);
    EXPECT_EQ(engine_.cache->stats().num_prompts, stats.num_prompts);
    EXPECT_TRUE(engine_.cache->TakeEvents().empty());
    auto again = call();
    EXPECT_TRUE(again.ok());
    return again;
  }

  Sequence Admit(Lease lease, const AdmitOptions& options) {
    const size_t num_ram = lease.num_ram_tokens(), num_partial = lease.num_partial_tokens();
    auto sequence = Try([&] {
      EXPECT_EQ(lease.num_ram_tokens(), num_ram);
      EXPECT_EQ(lease.num_partial_tokens(), num_partial);
      return engine_.cache->Admit(lease, options);
    });
    return std::move(sequence).value();
  }

  void Compute(Sequence& sequence, const Text& text, size_t end) {
    const auto more = std::span(text).subspan(sequence.length(), end - sequence.length());
    const size_t begin = sequence.length();
    ASSERT_TRUE(Try([&] { return sequence.Append(more); }).ok());
    engine_.Write(sequence, text, begin, end);
    EXPECT_TRUE(engine_.HoldsAll(sequence, text, end));
  }

  void Work() {
    const Text text = MakeText(200);
    Text other = text;
    for (size_t i = 45; i < other.size(); ++i) other[i] = TokenId{999};
    Sequence first = Admit(engine_.Lookup(text), {.reserve_tokens = 20});
    sequences_ = {&first};
    ASSERT_TRUE(Try([&] { return first.Reserve(50); }).ok());
    Compute(first, text, 40);
    first.Commit(40);

    Lease waiting = engine_.Lookup(text);
    Waiter waiter = *engine_.cache->Wait(waiting, 3);
    Sequence fork = first.Fork();
    sequences_ = {&first, &fork};
    Compute(fork, text, 45);  // copies what both share
    Compute(fork, other, 90);
    fork.Commit(90);
    Compute(first, text, 100);
    ASSERT_TRUE(first.Truncate(98).ok());
    Compute(first, text, 192);
    first.Commit(192);
    EXPECT_EQ(engine_.cache->TakeEvents().size(), 1u);
    Compute(first, text, 200);
    first.Commit(200);

    Sequence third = Admit(engine_.cache->Retry(std::move(waiter)), {});
    sequences_ = {&first, &fork, &third};
    EXPECT_EQ(third.length(), 192u);
    (void)third.Truncate(185);  // a state cannot; the rest copies a published block then
    Compute(third, text, 200);
    EXPECT_TRUE(engine_.HoldsAll(fork, other, 90));
    LoadFromTier();
    ImportFromElsewhere();
    sequences_.clear();
  }

  void LoadFromTier() {
    const Text text = MakeText(64, 5000);
    {
      Sequence sequence = Admit(engine_.Lookup(text), {.reserve_tokens = 64});
      for (size_t end = 16; end <= 64; end += 16) {
        Compute(sequence, text, end);
        sequence.Commit(end);
      }
    }
    while (tier_.num_under_way() > 0) engine_.cache->PollTier();
    engine_.cache->DropCached();
    const Text filler = MakeText(160, 7000);  // what the text had is in use again
    Sequence sequence = Admit(engine_.Lookup(filler), {.publish = false});
    sequences_.push_back(&sequence);
    Compute(sequence, filler, 160);
    Lease lease = engine_.Lookup(text);
    ASSERT_EQ(lease.num_tier_tokens(), 64u);
    ASSERT_TRUE(Try([&] { return engine_.cache->StartLoad(lease); }).ok());
    while (!engine_.cache->Poll(lease).done) {
    }
    EXPECT_EQ(engine_.cache->Install(lease), 64u);
    const Sequence loaded = Admit(std::move(lease), {.reserve_tokens = 5});
    EXPECT_TRUE(engine_.HoldsAll(loaded, text, 64));
    sequences_.pop_back();
  }

  // What came before the refusal stays, as cached text.
  void ImportFromElsewhere() {
    TestEngine from(100, Options(engine_.cache->options().groups, nullptr));
    const Text text = MakeText(64, 9000);
    {
      Sequence sequence = from.Admit(from.Lookup(text));
      from.StepByBlocks(sequence, text);
    }
    const auto records = from.cache->Export(from.ns, text);
    const auto imported = Try([&] { return engine_.cache->Import(engine_.ns, records); });
    ASSERT_TRUE(imported.ok());
    EXPECT_EQ(*imported, 4u);
    const Sequence sequence = Admit(engine_.Lookup(text), {.reserve_tokens = 30});
    EXPECT_TRUE(engine_.HoldsAll(sequence, text, 64));
  }

  MemoryTier tier_;
  TestEngine engine_;
  std::vector<const Sequence*> sequences_;
};

void RefuseEach(const std::vector<GroupSpec>& groups, size_t least_refusals) {
  bool was_refused = true;
  for (size_t n = 0; was_refused; ++n) {
    SCOPED_TRACE(testing::Message() << "allocation " << n << " is refused");
    Scenario scenario(groups, n);
    scenario.Run();
    was_refused = scenario.num_refused() > 0;
    ASSERT_TRUE(was_refused || n >= least_refusals);
    if (testing::Test::HasFailure()) return;
  }
}

// A slab is one block: each block is an allocation.
TEST(KvExhaustionTest, ARefusalAtAnyAllocationChangesNothing) {
  RefuseEach({TestEngine::FullGroup()}, 30);
}

TEST(KvExhaustionTest, ARefusalAtAnyAllocationOfAnyGroupChangesNothing) {
  RefuseEach({TestEngine::FullGroup(), TestEngine::WindowGroup(20, 4), TestEngine::StateGroup(4)},
             8);
}

TEST(KvExhaustionTest, ACacheThatGetsNoZeroBlockIsNotMade) {
  for (size_t n = 0; n < 2; ++n) {
    TestStore store(TestEngine::kBlockBytes);
    store.refuse_after = n;
    KvCacheOptions options;
    options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(20),
                      TestEngine::StateGroup()};
    options.budget_bytes = 64 * TestEngine::kBlockBytes;
    options.min_slab_bytes = TestEngine::kBlockBytes;
    const auto cache = KvCache::Make(options, &store);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(store.bytes_held(), 0u);
  }
}

// The budget, not the system, is what ends.
TEST(KvExhaustionTest, EveryBudgetServesWhatFitsAndRefusesTheRestUnharmed) {
  const Text text = MakeText(100), other = MakeText(90, 3000);
  for (size_t num_blocks = 1; num_blocks < 20; ++num_blocks) {
    TestEngine engine(num_blocks);
    std::vector<Sequence> sequences;
    for (const Text* wanted : {&text, &other, &text}) {
      Lease lease = engine.Lookup(*wanted);
      auto sequence = engine.cache->Admit(lease);
      if (!sequence.ok()) continue;
      while (sequence->length() < wanted->size()) {
        const size_t length = sequence->length();
        if (!engine.Compute(*sequence, *wanted, length + 1).ok()) {
          EXPECT_EQ(sequence->length(), length);
          break;
        }
        sequence->Commit(length + 1);
      }
      EXPECT_TRUE(engine.Holds(*sequence, *wanted, sequence->length()));
      engine.cache->CheckInvariants();
      sequences.push_back(std::move(sequence).value());
    }
    EXPECT_EQ(sequences[0].length(), std::min<size_t>(100, num_blocks * 16));
    sequences.clear();
    EXPECT_TRUE(engine.IsEmptyOnceDropped());
  }
}

}  // namespace
}  // namespace kvern::kv
