#include "cli/serve_stream.h"

#include <gtest/gtest.h>

namespace kvern::cli {
namespace {

TEST(CompletionStream, TakesTextIdsAndUsage) {
  CompletionStream stream;
  const auto piece = stream.Take(R"({"choices":[{"text":" a","token_ids":[5,7]}],"usage":null})");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->num_tokens, 2u);
  EXPECT_EQ(piece->ids, (std::vector<TokenId>{TokenId{5}, TokenId{7}}));
  EXPECT_FALSE(stream.has_ended());
  EXPECT_FALSE(stream.Take(R"({"choices":[{"text":"","finish_reason":"length"}]})"));
  EXPECT_TRUE(stream.has_ended());
  EXPECT_FALSE(stream.Take(R"({"choices":[],"usage":{"completion_tokens":2,
      "prompt_tokens_details":{"cached_tokens":48}}})"));
  EXPECT_FALSE(stream.Take("[DONE]"));
  EXPECT_EQ(stream.completion_tokens(), 2u);
  EXPECT_EQ(stream.cached_tokens(), 48u);
  EXPECT_EQ(stream.text(), " a");
  EXPECT_FALSE(stream.error());
}

TEST(CompletionStream, TextWithoutIdsCountsAsOneToken) {
  CompletionStream stream;
  const auto piece = stream.Take(R"({"choices":[{"text":" a"}]})");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->num_tokens, 1u);
  EXPECT_TRUE(piece->ids.empty());
  EXPECT_FALSE(stream.Take(R"({"choices":[{"text":""}]})"));
}

TEST(CompletionStream, PassesOverWhatHasAnotherType) {
  CompletionStream stream;
  for (const char* const data :
       {"[]", "1", "null", R"({"choices":{}})", R"({"choices":[1]})", R"({"choices":[{"text":5}]})",
        R"({"choices":[{"token_ids":[-1]}]})", R"({"choices":[{"token_ids":[5000000000]}]})",
        R"({"usage":{"completion_tokens":"x","prompt_tokens_details":[]}})"}) {
    EXPECT_FALSE(stream.Take(data)) << data;
  }
  EXPECT_FALSE(stream.error());
  EXPECT_FALSE(stream.completion_tokens());
}

TEST(CompletionStream, SaysWhatWentWrong) {
  CompletionStream failed, broken, deep;
  failed.Take(R"({"error":{"message":"out of\nmemory","type":"server_error"}})");
  EXPECT_EQ(failed.error(), "out of memory");
  broken.Take("{");
  EXPECT_EQ(broken.error(), "an event is no JSON: not JSON from byte 2 on");
  deep.Take(std::string(1000, '['));
  EXPECT_TRUE(deep.error());
}

TEST(ErrorMessage, IsOneLineOfWhateverCame) {
  EXPECT_EQ(ErrorMessage(R"({"error":{"message":"no","code":4}})"), "no");
  EXPECT_EQ(ErrorMessage(R"({"error":"no"})"), "no");
  EXPECT_EQ(ErrorMessage(R"({"message":"no"})"), "no");
  EXPECT_EQ(ErrorMessage(R"({"detail":[1]})"), R"({"detail":[1]})");
  EXPECT_EQ(ErrorMessage("<html>\n<b>404</b>\n"), "<html> <b>404</b>");
  EXPECT_EQ(ErrorMessage(""), "");
  EXPECT_LE(ErrorMessage(std::string(10'000, 'x')).size(), 300u);
}

TEST(ParseReplies, TakeTokensAndModels) {
  EXPECT_EQ(ParseTokens(R"({"tokens":[1,2]})"), (std::vector<TokenId>{TokenId{1}, TokenId{2}}));
  EXPECT_FALSE(ParseTokens(R"({"tokens":["a"]})"));
  EXPECT_FALSE(ParseTokens("x"));
  EXPECT_EQ(ParseModelName(R"({"data":[{"id":"m"},{"id":"n"}]})"), "m");
  EXPECT_FALSE(ParseModelName(R"({"data":[]})"));
}

}  // namespace
}  // namespace kvern::cli
