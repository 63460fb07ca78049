// Quotas of the KV cache: what an account may have, and what others must leave it.
#include <gtest/gtest.h>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlock = TestEngine::kBlockBytes;

// A cache of two accounts; `Use` says for whom the engine computes.
struct Tenants {
  explicit Tenants(size_t num_blocks) : engine(num_blocks) {
    ann = Open("ann", "ann");
    salted = Open("ann, salted", "ann");
    bob = Open("bob", "bob");
    engine.ns = ann;
  }

  NamespaceId Open(std::string tenant, std::string account) {
    return *engine.cache->OpenNamespace(
        {.tenant = std::move(tenant), .account = std::move(account)});
  }
  Status Set(std::vector<AccountQuota> quotas) { return engine.cache->SetQuotas(quotas); }
  void Run(NamespaceId ns, const Text& text) {
    engine.ns = ns;
    const Sequence sequence = engine.Run(text);
  }
  size_t NumFound(NamespaceId ns, const Text& text) {
    const PromptSplit split = engine.cache->Explain(ns, text).split;
    return split.hit() + split.miss[static_cast<size_t>(MissReason::kLogitsNeeded)];
  }

  TestEngine engine;
  NamespaceId ann{}, salted{}, bob{};
};

TEST(KvQuotaTest, AtItsShareAnAccountEvictsItsOwnAndTheMissSaysSo) {
  Tenants tenants(20);
  ASSERT_TRUE(tenants.Set({{"ann", {.share_bytes = 4 * kBlock}}}).ok());
  const Text first = MakeText(48), second = MakeText(48, 1000), bobs = MakeText(48, 2000);
  tenants.Run(tenants.bob, bobs);
  tenants.Run(tenants.ann, first);
  tenants.engine.cache->SetTime(77);
  tenants.Run(tenants.ann, second);
  EXPECT_EQ(tenants.NumFound(tenants.ann, second), 48u);
  EXPECT_EQ(tenants.NumFound(tenants.ann, first), 16u);
  EXPECT_EQ(tenants.NumFound(tenants.bob, bobs), 48u);
  const NamespaceUsage usage = tenants.engine.cache->usage(tenants.ann);
  EXPECT_EQ(usage.active_bytes + usage.cached_bytes + usage.reserved_bytes, 4 * kBlock);

  const Explanation explanation = tenants.engine.cache->Explain(tenants.ann, first);
  ASSERT_EQ(explanation.misses.size(), 1u);
  EXPECT_EQ(explanation.misses[0].reason, MissReason::kEvicted);
  EXPECT_EQ(explanation.misses[0].cause, "share");
  EXPECT_EQ(explanation.misses[0].when_us, 77);
  EXPECT_EQ(tenants.engine.cache->stats().evicted_blocks[size_t(EvictionCause::kShare)], 2u);
}

TEST(KvQuotaTest, AShareCountsWhatIsActiveAndPromisedInAllNamespaces) {
  Tenants tenants(20);
  ASSERT_TRUE(tenants.Set({{"ann", {.share_bytes = 3 * kBlock}}}).ok());
  const Text text = MakeText(80);
  const Sequence first = tenants.engine.Run(Text(text.begin(), text.begin() + 16));
  tenants.engine.ns = tenants.salted;
  Sequence second = tenants.engine.Admit(tenants.engine.Lookup(text));
  EXPECT_TRUE(second.Reserve(32).ok());
  EXPECT_EQ(tenants.engine.cache->RoomFor(tenants.ann).share, 0u);
  EXPECT_EQ(second.BytesNeeded(48), kBlock);
  const Status refused = second.Reserve(48);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("of the 384 that are this account's share 128 are active"),
            std::string::npos)
      << refused.error().message;
  // Others do not feel it.
  tenants.engine.ns = tenants.bob;
  const Sequence bobs = tenants.engine.Run(MakeText(17 * 16, 5000));
}

TEST(KvQuotaTest, OthersLeaveAnAccountItsFloor) {
  Tenants tenants(8);
  ASSERT_TRUE(tenants.Set({{"ann", {.floor_bytes = 2 * kBlock}}}).ok());
  const Text anns = MakeText(64), bobs = MakeText(6 * 16, 1000), more = MakeText(7 * 16, 2000);
  tenants.Run(tenants.ann, anns);
  tenants.Run(tenants.bob, bobs);
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 32u);
  EXPECT_EQ(tenants.engine.cache->RoomFor(tenants.bob).pool, 6 * kBlock);
  EXPECT_EQ(tenants.engine.cache->CapacityOf("bob").pool, 6 * kBlock);
  EXPECT_EQ(tenants.engine.cache->CapacityOf("nobody").pool, 6 * kBlock);
  EXPECT_EQ(tenants.engine.cache->CapacityOf("ann").pool, 8 * kBlock);
  tenants.engine.ns = tenants.bob;
  EXPECT_FALSE(tenants.engine.cache
                   ->Admit(*std::make_unique<Lease>(tenants.engine.Lookup(more)),
                           {.reserve_tokens = more.size()})
                   .ok());
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 32u);
  // It may itself.
  tenants.Run(tenants.ann, more);
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 16u);
}

TEST(KvQuotaTest, WhoUsedItLongestAgoLosesItFirst) {
  Tenants tenants(6);
  ASSERT_TRUE(tenants.Set({{"ann", {.share_bytes = 5 * kBlock}}}).ok());
  const Text anns = MakeText(48), bobs = MakeText(48, 1000), more = MakeText(32, 2000);
  tenants.Run(tenants.bob, bobs);
  tenants.engine.cache->SetTime(1);
  tenants.Run(tenants.ann, anns);
  tenants.engine.cache->SetTime(2);
  tenants.Run(tenants.ann, more);
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 48u);
  EXPECT_EQ(tenants.NumFound(tenants.bob, bobs), 16u);
}

TEST(KvQuotaTest, QuotasChangeAndGo) {
  Tenants tenants(10);
  const Text anns = MakeText(64), bobs = MakeText(48, 1000);
  tenants.Run(tenants.ann, anns);
  ASSERT_TRUE(tenants.Set({{"ann", {.share_bytes = 2 * kBlock + 5, .floor_bytes = kBlock}}}).ok());
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 32u);
  EXPECT_EQ(tenants.engine.cache->quota("ann").share_bytes, 2 * kBlock);
  tenants.Run(tenants.ann, MakeText(32, 3000));
  EXPECT_EQ(tenants.engine.cache->usage(tenants.ann).cached_bytes, 2 * kBlock);
  ASSERT_TRUE(tenants.Set({}).ok());
  EXPECT_EQ(tenants.engine.cache->quota("ann").share_bytes, SIZE_MAX);
  tenants.Run(tenants.ann, anns);
  EXPECT_EQ(tenants.NumFound(tenants.ann, anns), 64u);
  tenants.engine.cache->CheckInvariants();
}

TEST(KvQuotaTest, FloorsThatDoNotFitAreRefused) {
  Tenants tenants(10);
  ASSERT_TRUE(tenants.Set({{"ann", {.floor_bytes = 6 * kBlock}}}).ok());
  const Status status =
      tenants.Set({{"ann", {.floor_bytes = 6 * kBlock}}, {"bob", {.floor_bytes = 5 * kBlock}}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("the floor of bob"), std::string::npos);
  EXPECT_FALSE(tenants.Set({{"bob", {.share_bytes = kBlock, .floor_bytes = 2 * kBlock}}}).ok());
  EXPECT_EQ(tenants.engine.cache->quota("ann").floor_bytes, 6 * kBlock);
}

}  // namespace
}  // namespace kvern::kv
