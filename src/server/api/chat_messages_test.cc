#include "server/api/chat_messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

Json Prepared(const char* messages) {
  Json prepared;
  std::vector<CacheMark> marks;
  const auto error = PrepareMessages(Json::parse(messages), prepared, marks);
  EXPECT_FALSE(error.has_value()) << error->message;
  return prepared;
}

std::string Problem(const char* messages) {
  Json prepared;
  std::vector<CacheMark> marks;
  const auto error = PrepareMessages(Json::parse(messages), prepared, marks);
  return error ? error->message : "none";
}

TEST(PrepareMessages, DeveloperIsSystemAndPartsAreOneText) {
  EXPECT_EQ(Prepared(R"([{"role": "developer", "content": "Be brief."},
                         {"role": "user", "content": [{"type": "text", "text": "a"},
                                                      {"type": "text", "text": "b"}]}])"),
            Json::parse(R"([{"role": "system", "content": "Be brief."},
                            {"role": "user", "content": "a\nb"}])"));
}

TEST(PrepareMessages, KeepsNamesAndToolHistory) {
  const char* const history = R"([
      {"role": "user", "content": "Weather?", "name": "ann"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "sunny"}])";
  Json expected = Json::parse(history);
  expected[1]["content"] = "";
  EXPECT_EQ(Prepared(history), expected);
}

TEST(PrepareMessages, NamesWhatIsWrong) {
  EXPECT_EQ(Problem("{}"), "messages: must be an array of at least one message");
  EXPECT_EQ(Problem("[]"), "messages: must be an array of at least one message");
  EXPECT_EQ(Problem("[1]"), "messages[0]: must be an object");
  EXPECT_EQ(Problem(R"([{"content": "a"}])"), "messages[0].role: must be a string");
  EXPECT_EQ(Problem(R"([{"role": "user"}])"), "messages[0].content: is missing");
  EXPECT_EQ(Problem(R"([{"role": "user", "content": 1}])"),
            "messages[0].content: must be a string or an array of text parts");
  EXPECT_EQ(Problem(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "messages[0].content[0].text: must be a string");
  EXPECT_EQ(Problem(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
            "messages[0].content[0]: parts of type image_url: not offered yet");
  EXPECT_EQ(Problem(R"([{"role": "assistant", "content": "", "tool_calls": 1}])"),
            "messages[0].tool_calls: must be an array");
}

TEST(PrepareMessages, MarksSayWhatIsKept) {
  Json prepared;
  std::vector<CacheMark> marks;
  const auto error = PrepareMessages(Json::parse(R"([
      {"role": "system", "content": "s", "prompt_cache_breakpoint": {"mode": "explicit"}},
      {"role": "user", "content": [
        {"type": "text", "text": "ab",
         "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "1h"}},
        {"type": "text", "text": "c"}]}])"),
                                     prepared, marks);
  ASSERT_FALSE(error.has_value()) << error->message;
  EXPECT_EQ(prepared, Json::parse(R"([{"role": "system", "content": "s"},
                                      {"role": "user", "content": "ab\nc"}])"));
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].message, 0u);
  EXPECT_EQ(marks[0].content_bytes, SIZE_MAX);
  EXPECT_EQ(marks[0].ttl_us, std::nullopt);
  EXPECT_EQ(marks[1].message, 1u);
  EXPECT_EQ(marks[1].content_bytes, 2u);
  EXPECT_EQ(marks[1].ttl_us, 3'600'000'000);
  const auto problem = [](const char* mark) {
    return Problem(
        fmt::format(R"([{{"role": "user", "content": "x", "prompt_cache_breakpoint": {}}}])", mark)
            .c_str());
  };
  EXPECT_EQ(problem("1"), "messages[0].prompt_cache_breakpoint: must be an object with a mode");
  EXPECT_EQ(problem("{}"), "messages[0].prompt_cache_breakpoint.mode: must be \"explicit\"");
  EXPECT_EQ(problem(R"({"mode": "explicit", "ttl": "2h"})"),
            "messages[0].prompt_cache_breakpoint.ttl: must be 5m, 30m, 1h, 12h or 24h");
}

TEST(ParseToolArguments, StringsOfObjectsBecomeObjects) {
  Json messages = Json::parse(R"([
      {"role": "assistant", "tool_calls": [
        {"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}},
        {"function": {"name": "g", "arguments": "not JSON"}}, {"function": 1}, 2]},
      {"role": "user", "content": "{}"}])");
  EXPECT_TRUE(ParseToolArguments(messages));
  const Json& calls = messages[0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], Json::parse(R"({"b": 1, "a": [2]})"));
  EXPECT_EQ(calls[1]["function"]["arguments"], "not JSON");
  EXPECT_EQ(messages[1]["content"], "{}");
  EXPECT_FALSE(ParseToolArguments(messages));
}

}  // namespace
}  // namespace kvern::server
