#include "server/api/anthropic.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api/answer_format.h"
#include "server/api/api_test_util.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

class AnthropicTest : public testing::Test {
 protected:
  std::variant<ApiRequest, ApiError> Parse(const char* body) {
    return ParseMessagesRequest(Json::parse(body), model_);
  }

  std::string PromptOf(const char* body) {
    const auto parsed = Parse(body);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return "error: " + error->message;
    return TextOf(std::get<ApiRequest>(parsed).request.tokens);
  }

  std::string ParamOf(const char* body) {
    const auto parsed = Parse(body);
    const auto* error = std::get_if<ApiError>(&parsed);
    return error != nullptr ? error->param.value_or("none") : "no error";
  }

  LetterText text_;
  const ModelInfo model_{.text = &text_, .context = 4096, .fingerprint = "0123456789abcdef"};
};

TEST_F(AnthropicTest, AMessageIsAChat) {
  EXPECT_EQ(PromptOf(R"({"max_tokens": 9, "system": [{"type": "text", "text": "be"},
                         {"type": "text", "text": "kind", "cache_control": {"type": "ephemeral"}}],
                         "messages": [{"role": "user", "content": "hi"},
                                      {"role": "assistant", "content": [
                                        {"type": "thinking", "thinking": "hm"},
                                        {"type": "text", "text": "ho"}]}]})"),
            R"(system:"be\nkind";user:"hi";assistant:ho)");
}

TEST_F(AnthropicTest, NoMessagesAreATurnThatSaysNothing) {
  EXPECT_EQ(PromptOf(R"({"max_tokens": 9, "messages": []})"), R"(user:"";assistant:)");
}

TEST_F(AnthropicTest, ToolsCountInOpenAisForm) {
  const auto parsed =
      ParseMessagesRequest(Json::parse(R"({"messages": [{"role": "user", "content": "hi"}],
                      "tools": [{"name": "add", "input_schema": {"type": "object"}}]})"),
                           model_, /*needs_max_tokens=*/false);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed));
  EXPECT_NE(TextOf(std::get<ApiRequest>(parsed).request.tokens)
                .find(R"("name":"add","description":"","parameters":{"type":"object"})"),
            std::string::npos);
}

TEST_F(AnthropicTest, ImagesAreRefusedInLlamaServersWords) {
  const auto parsed = Parse(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
                                {"type": "tool_result", "tool_use_id": "t", "content": [
                                  {"type": "image"}]}]}]})");
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, 500);
  EXPECT_NE(error->message.find("image input is not supported"), std::string::npos);
}

TEST_F(AnthropicTest, ToolsThatWereUsedAreToldBeforeWhatIsSaid) {
  const std::string prompt = PromptOf(R"({"max_tokens": 9, "messages": [
      {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]},
      {"role": "user", "content": [{"type": "text", "text": "so?"},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "2"}]}]}]})");
  EXPECT_NE(prompt.find(R"("name":"add","arguments":{"a":1})"), prompt.npos) << prompt;
  EXPECT_TRUE(prompt.ends_with(R"(tool:"2";user:"so?";assistant:)")) << prompt;
}

TEST_F(AnthropicTest, WhatIsWrongIsNamedWhereItIs) {
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1})"), "messages");
  EXPECT_EQ(ParamOf(R"({"messages": [{"role": "user", "content": "x"}]})"), "max_tokens");
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1, "system": "s", "messages": [
                        {"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]})"),
            "messages[1].role");
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
                        {"type": "text", "text": "x"}, {"type": "image"}]}]})"),
            "messages[0].content[1]");
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1, "system": 5, "messages": []})"), "system");
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1, "tools": [{}], "messages": []})"), "tools");
  EXPECT_EQ(ParamOf(R"({"max_tokens": 1, "stop_sequences": [1],
                        "messages": [{"role": "user", "content": "x"}]})"),
            "stop_sequences");
}

TEST_F(AnthropicTest, SaysWhichStopItWas) {
  ApiRequest request;
  request.request.stop = {"END", "x"};
  const auto stop_of = [&](Completion completion, std::string_view hidden) {
    for (const char c : hidden) {
      completion.tokens.push_back({TokenId{static_cast<unsigned char>(c)}, 0, {}});
    }
    Answer answer{.completions = {std::move(completion)}, .report = {}};
    answer.report.prompt_tokens = 10;
    answer.report.prompt.ram = 4;
    const auto format = MakeAnthropicFormat(request, model_, {.id = "1"}, 10);
    return Json::parse(format->Whole(answer));
  };
  const Json body = stop_of(Say("hello", -1), "END");
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "END");
  EXPECT_EQ(body["usage"]["input_tokens"], 6);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(stop_of(Say("hello", -1), "")["stop_reason"], "end_turn");
  Completion cut = Say("hello", -1);
  cut.finish = FinishReason::kLength;
  EXPECT_EQ(stop_of(cut, "")["stop_reason"], "max_tokens");
}

TEST_F(AnthropicTest, ErrorsHaveTheTypesThatClientsKnow) {
  EXPECT_EQ(AnthropicErrorBody({.status = 503, .message = "full"}, "r7").dump(),
            R"({"type":"error","error":{"type":"overloaded_error","message":"full"},)"
            R"("request_id":"r7"})");
}

}  // namespace
}  // namespace kvern::server
