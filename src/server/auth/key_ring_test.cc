#include "server/auth/key_ring.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"

namespace kvern::server {
namespace {

TEST(KeyRing, WithoutKeysAnybodyIsLetIn) {
  const auto ring = KeyRing::Make({}, "");
  ASSERT_TRUE(ring.ok());
  EXPECT_TRUE((*ring)->is_open());
  ASSERT_TRUE((*ring)->Find(std::nullopt));
  EXPECT_EQ((*ring)->Find("whatever")->tenant, "");
}

TEST(KeyRing, EachKeyIsATenant) {
  const auto ring = KeyRing::Make({"one", "two"}, "");
  ASSERT_TRUE(ring.ok());
  const auto one = (*ring)->Find("one"), two = (*ring)->Find("two");
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->tenant, two->tenant);
  EXPECT_TRUE(one->Has(Right::kAdmin));
  EXPECT_FALSE((*ring)->Find("three"));
  EXPECT_FALSE((*ring)->Find("on"));
  EXPECT_FALSE((*ring)->Find(""));
  EXPECT_FALSE((*ring)->Find(std::nullopt));
}

TEST(KeyRing, AFileSaysWhoAndWhat) {
  const NewKey made = MakeKey();
  const std::string path = testing::TempDir() + "keys";
  ASSERT_TRUE(
      WriteTextFile(path, "# ours\n\n" + made.line + " priority=-2\r\nplain # theirs\n").ok());
  const auto ring = KeyRing::Make({}, path);
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  const auto caller = (*ring)->Find(made.key);
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->tenant, "NAME");
  EXPECT_EQ(caller->priority, -2);
  EXPECT_TRUE(caller->Has(Right::kInfer) && caller->Has(Right::kInspect));
  EXPECT_FALSE(caller->Has(Right::kAdmin));
  EXPECT_TRUE((*ring)->Find("plain"));

  ASSERT_TRUE(WriteTextFile(path, "other").ok());
  EXPECT_TRUE((*ring)->Reload().ok());
  EXPECT_FALSE((*ring)->Find(made.key));
  EXPECT_TRUE((*ring)->Find("other"));

  ASSERT_TRUE(WriteTextFile(path, "other rights=everything").ok());
  const Status broken = (*ring)->Reload();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message,
            path + ": line 1: the right 'everything' is none of infer, inspect, admin");
  EXPECT_TRUE((*ring)->Find("other"));  // as it was
}

TEST(KeyRing, BadLinesAreNamed) {
  for (const auto& [text, message] : {
           std::pair("\nblake2b:12 tenant=a", "line 2: blake2b: must be followed by 64 hex digits"),
           std::pair("k tenant=", "line 1: 'tenant=' is not of the form name=value"),
           std::pair(
               "k colour=red",
               "line 1: 'colour' is none of tenant, priority, rate, rights, kv_share, kv_floor"),
           std::pair("k kv_share=0",
                     "line 1: kv_share: '0' is neither tokens, as 4096, nor a percentage, as 25%"),
           std::pair(
               "k kv_floor=101%",
               "line 1: kv_floor: '101%' is neither tokens, as 4096, nor a percentage, as 25%"),
           std::pair("k tenant=a kv_share=5\n\nl kv_floor=1 tenant=a",
                     "line 3: kv_share and kv_floor of the tenant a are on line 1 already"),
           std::pair("k priority=high", "line 1: the priority 'high' is no integer"),
       }) {
    const auto parsed = ParseKeyFile(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, message);
  }
}

TEST(KeyRing, QuotasAreTenantsAndMustFit) {
  const std::string path = testing::TempDir() + "quota_keys";
  ASSERT_TRUE(WriteTextFile(path,
                            "a tenant=x kv_share=50% kv_floor=100\nb tenant=y kv_floor=40%\n"
                            "c tenant=x\n")
                  .ok());
  const auto ring = KeyRing::Make({}, path);
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  std::vector<TenantTokens> tokens;
  const auto accept_within = [&](size_t capacity) {
    return [&, capacity](std::span<const TenantQuota> quotas) -> Status {
      KVERN_ASSIGN_OR_RETURN(tokens, ResolveQuotas(quotas, capacity));
      return {};
    };
  };
  ASSERT_TRUE((*ring)->Check(accept_within(1000)).ok());
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].tenant, "x");
  EXPECT_EQ(tokens[0].share, 500u);
  EXPECT_EQ(tokens[0].floor, 100u);
  EXPECT_EQ(tokens[1].share, std::nullopt);
  EXPECT_EQ(tokens[1].floor, 400u);
  EXPECT_EQ((*ring)->Check(accept_within(160)).error().message,
            path + ": line 1: kv_floor, 100 tokens, is more than the 80 of kv_share");

  ASSERT_TRUE(WriteTextFile(path, "a tenant=x kv_floor=70%\nd kv_floor=31%").ok());
  const Status refused = (*ring)->Reload(accept_within(1000));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            path +
                ": line 2: kv_floor, 310 tokens, is more than the 300 of 1000 in the KV cache "
                "that the floors above leave");
  EXPECT_TRUE((*ring)->Find("b"));  // as it was
  EXPECT_FALSE((*ring)->Find("d"));
}

TEST(KeyRing, KeysAreNotGuessed) {
  const NewKey one = MakeKey(), two = MakeKey();
  EXPECT_NE(one.key, two.key);
  EXPECT_EQ(one.key.size(), 3u + 64u);
  EXPECT_EQ(one.line.find(one.key), std::string::npos);
}

}  // namespace
}  // namespace kvern::server
