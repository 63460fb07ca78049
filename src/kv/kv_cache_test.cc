#include <gtest/gtest.h>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

TEST(KvCacheTest, ASecondPromptSharesWholeBlocksAndCopiesRows) {
  TestEngine engine(20);
  const Text text = MakeText(40);
  { const Sequence first = engine.Run(text); }
  engine.cache->CheckInvariants();
  EXPECT_EQ(engine.bytes().cached, 3 * TestEngine::kBlockBytes);

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
  ASSERT_TRUE(engine.Compute(second, other, 40).ok());
  second.Commit(40);
  EXPECT_TRUE(engine.Holds(second, other, 40));
  engine.cache->CheckInvariants();
  const KvStats stats = engine.cache->stats();
  EXPECT_EQ(stats.prompts.ram, 32u);
  EXPECT_EQ(stats.prompts.partial, 5u);
  EXPECT_EQ(stats.prompts.hit() + stats.prompts.missed(), 80u);
}

}  // namespace
}  // namespace kvern::kv
