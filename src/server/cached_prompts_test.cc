#include "server/cached_prompts.h"

#include <gtest/gtest.h>

namespace kvern::server {
namespace {

CachedPrompt PromptOf(const std::string& id, const std::string& tenant, double created,
                      double expires) {
  return {.id = id,
          .tenant = tenant,
          .tokens = {TokenId{1}},
          .kept_tokens = 0,
          .created_unix_s = created,
          .expires_unix_s = expires};
}

TEST(CachedPrompts, EachTenantHasItsOwnUntilTheirTimeIsOver) {
  CachedPrompts prompts;
  prompts.Put(PromptOf("z", "a", 1, 100));
  prompts.Put(PromptOf("y", "a", 2, 50));
  prompts.Put(PromptOf("x", "b", 3, 100));
  ASSERT_EQ(prompts.List("a", 10).size(), 2u);
  EXPECT_EQ(prompts.List("a", 10)[0].id, "z");
  EXPECT_EQ(prompts.List({}, 10).size(), 3u);
  EXPECT_TRUE(prompts.Find("x", {}, 10));
  EXPECT_FALSE(prompts.Find("x", "a", 10));
  EXPECT_FALSE(prompts.Find("y", "a", 50));
  prompts.Put(PromptOf("z", "a", 1, 200));
  EXPECT_EQ(prompts.Find("z", "a", 150)->expires_unix_s, 200);
  prompts.Remove("z");
  EXPECT_TRUE(prompts.List({}, 150).empty());
}

TEST(CachedPrompts, ATenantMayHaveSoMany) {
  CachedPrompts prompts;
  for (size_t i = 0; i < CachedPrompts::kMaxPrompts; ++i) {
    EXPECT_TRUE(prompts.HasRoom("a", 0));
    prompts.Put(PromptOf(std::to_string(i), "a", 0, 10));
  }
  EXPECT_FALSE(prompts.HasRoom("a", 0));
  EXPECT_TRUE(prompts.HasRoom("b", 0));
  EXPECT_TRUE(prompts.HasRoom("a", 10));
}

}  // namespace
}  // namespace kvern::server
