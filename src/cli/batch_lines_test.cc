#include "cli/batch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/api/api_test_util.h"

namespace kvern::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

const server::LetterText kText;
const server::ModelInfo kModel = {.text = &kText, .context = 100, .fingerprint = "ab"};
const server::ReplyIds kIds = {.id = "7", .created = 5};

constexpr const char* kGood =
    R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}})";

// `kGood` with some members replaced.
BatchItem Parse(const char* changes) {
  Json line = Json::parse(kGood);
  line.update(Json::parse(changes));
  return ParseBatchLine(3, line.dump(), kModel);
}

TEST(ParseBatchLine, IsARequestOfEitherEndpoint) {
  const BatchItem item = Parse("{}");
  EXPECT_EQ(item.line, 3u);
  EXPECT_EQ(item.custom_id, "a");
  ASSERT_TRUE(std::holds_alternative<server::ApiRequest>(item.content));
  EXPECT_EQ(server::TextOf(std::get<server::ApiRequest>(item.content).request.tokens), "Hi");
  const BatchItem chat = Parse(R"({"url": "/v1/chat/completions",
                                   "body": {"messages": [{"role": "user", "content": "x"}]}})");
  EXPECT_TRUE(std::holds_alternative<server::ApiRequest>(chat.content));
}

TEST(ParseBatchLine, NamesTheLineThatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"custom_id": 5})", "line 3: custom_id must be a string"},
      {R"({"custom_id": null})", "line 3: custom_id must be a string"},
      {R"({"method": "GET"})", "line 3: method must be \"POST\""},
      {R"({"url": "/v1/embeddings"})", "line 3: url must be"},
      {R"({"url": null})", "line 3: url must be"},
      {R"({"body": []})", "line 3: body must be an object"},
      {R"({"body": null})", "line 3: body must be an object"},
  };
  for (const auto& [changes, message] : cases) {
    const BatchItem item = Parse(changes);
    const auto* error = std::get_if<LineError>(&item.content);
    ASSERT_NE(error, nullptr) << changes;
    EXPECT_THAT(error->message, StartsWith(message));
  }
  const BatchItem broken = ParseBatchLine(9, R"({"custom_id": "a", )", kModel);
  EXPECT_THAT(std::get<LineError>(broken.content).message,
              StartsWith("line 9: not JSON from byte"));
  EXPECT_FALSE(broken.custom_id.has_value());
}

TEST(OutputLines, AnswersHaveOpenAisForm) {
  const BatchItem item = Parse("{}");
  Answer answer;
  answer.completions.push_back(server::Say("ok", -1));
  const Json line = Json::parse(AnswerLine(item, answer, kModel, kIds));
  EXPECT_EQ(line["id"], "batch_req_7");
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_EQ(line["response"]["status_code"], 200);
  EXPECT_EQ(line["response"]["request_id"], "req_7");
  EXPECT_EQ(line["response"]["body"]["choices"][0]["text"], "ok");
  EXPECT_TRUE(line["error"].is_null());
}

TEST(OutputLines, ABodyThatIsRefusedHasAStatus) {
  const BatchItem item = Parse(R"({"body": {"prompt": "Hi", "n": 0}})");
  const Json line = Json::parse(RefusalLine(item, std::get<server::ApiError>(item.content), kIds));
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_EQ(line["response"]["status_code"], 400);
  EXPECT_EQ(line["response"]["body"]["error"]["param"], "n");
  EXPECT_TRUE(line["error"].is_null());
}

TEST(OutputLines, ALineThatIsNoneIsNamedByItsNumber) {
  const BatchItem item = ParseBatchLine(4, "oops", kModel);
  const Json line = Json::parse(MalformedLine(item, std::get<LineError>(item.content), kIds));
  EXPECT_TRUE(line["custom_id"].is_null());
  EXPECT_TRUE(line["response"].is_null());
  EXPECT_EQ(line["error"]["code"], "invalid_json");
  EXPECT_EQ(line["error"]["line"], 4);
}

TEST(FindAnswered, ReadsWhatTheFunctionsWrite) {
  const BatchItem item = Parse(R"({"method": "GET"})");
  const auto& error = std::get<LineError>(item.content);
  const auto with_id = FindAnswered(MalformedLine(item, error, kIds));
  ASSERT_TRUE(with_id.has_value());
  EXPECT_EQ(with_id->custom_id, "a");
  const auto without_id = FindAnswered(MalformedLine({.line = 8}, error, kIds));
  ASSERT_TRUE(without_id.has_value());
  EXPECT_FALSE(without_id->custom_id.has_value());
  EXPECT_EQ(without_id->input_line, 8u);
  for (const char* const other : {"", "7", "[]", "{}", kGood, R"({"response":1,"error":null})",
                                  R"({"response":null,"error":{"line":-1}})"}) {
    EXPECT_FALSE(FindAnswered(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace kvern::cli
