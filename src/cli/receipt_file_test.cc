#include "cli/receipt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kvern::cli {
namespace {

using testing::HasSubstr;

engine::Receipt MakeReceipt(uint64_t seed) {
  engine::Receipt receipt;
  receipt.model.fingerprint = std::string(64, 'a');
  receipt.request.tokens = {TokenId{1}};
  receipt.request.seed = seed;
  receipt.request.max_tokens = 1;
  receipt.answer.completions = {{kvern::FinishReason::kStop, 1}};
  receipt.answer.digest = std::string(64, 'b');
  return receipt;
}

std::string Json(uint64_t seed) { return engine::ToJson(MakeReceipt(seed)); }

std::string Quoted(const std::string& json) {
  std::string text = "\"";
  for (const char c : json) text += c == '"' ? std::string("\\\"") : std::string(1, c);
  return text + "\"";
}

void ExpectOne(const std::string& text, uint64_t seed) {
  const auto found = FindReceipts("reply.json", text);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().receipt.request.seed, seed);
  EXPECT_EQ(found->front().line, 0u);
}

std::string MessageOf(const std::string& text) {
  const auto found = FindReceipts("reply.json", text);
  EXPECT_FALSE(found.ok());
  return found.ok() ? std::string() : found.error().message;
}

TEST(ReceiptFile, IsFoundWhereRepliesHaveIt) {
  ExpectOne(Json(5), 5);
  ExpectOne("{\"text\": \"x\", \"receipt\": " + Json(6) + "}", 6);
  ExpectOne("{\n\"kvern_receipt\": " + Quoted(Json(7)) + "\n}", 7);
  ExpectOne("{\"id\": 1, \"response\": {\"body\": {\"kvern_receipt\": " + Json(8) + "}}}", 8);
}

TEST(ReceiptFile, LinesWithoutAReceiptAreLeftOut) {
  const auto found =
      FindReceipts("out.jsonl", "{\"receipt\":" + Json(1) +
                                    "}\n\n{\"error\":null}\r\n{\"receipt\":" + Json(2) + "}");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].line, 1u);
  EXPECT_EQ((*found)[1].line, 4u);
  EXPECT_EQ((*found)[1].receipt.request.seed, 2u);
}

TEST(ReceiptFile, ErrorsNameFileAndLine) {
  EXPECT_THAT(MessageOf(""), HasSubstr("reply.json: holds no receipt"));
  EXPECT_THAT(MessageOf("{}"), HasSubstr("reply.json: holds no receipt"));
  EXPECT_THAT(MessageOf("{\"a\":{\"a\":{\"a\":{\"a\":" + Json(1) + "}}}}"),
              HasSubstr("holds no receipt"));
  EXPECT_THAT(MessageOf("{}\nx"), HasSubstr("reply.json: line 2: is not JSON"));
  EXPECT_THAT(MessageOf("{}\n{\"receipt\":{}}"), HasSubstr("reply.json: line 2: receipt: version"));
  EXPECT_THAT(
      MessageOf("{\"receipt\":" + std::string(100000, '[') + std::string(100000, ']') + "}"),
      HasSubstr("holds no receipt"));
}

}  // namespace
}  // namespace kvern::cli
