#include "server/api/openai.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/api/api_test_util.h"
#include "server/api/json_body.h"

namespace kvern::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

const LetterText kText;

std::variant<ApiRequest, ApiError> Parse(Endpoint endpoint, const Json& body) {
  return ParseRequest(endpoint, body, {.text = &kText, .context = 1000, .fingerprint = "abc"});
}

// A body that needs nothing but `fields`.
Json WithPrompt(Endpoint endpoint, const Json& fields) {
  Json body = endpoint == Endpoint::kCompletions
                  ? Json{{"prompt", "Hi"}}
                  : Json{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  body.update(fields);
  return body;
}

ApiRequest Good(Endpoint endpoint, const char* fields) {
  auto result = Parse(endpoint, WithPrompt(endpoint, Json::parse(fields)));
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ApiRequest>(std::move(result));
}

ApiError Bad(Endpoint endpoint, const char* fields) {
  auto result = Parse(endpoint, WithPrompt(endpoint, Json::parse(fields)));
  if (std::holds_alternative<ApiRequest>(result)) {
    ADD_FAILURE() << "accepted: " << fields;
    return {};
  }
  return std::get<ApiError>(std::move(result));
}

constexpr Endpoint kChat = Endpoint::kChatCompletions;
constexpr Endpoint kPlain = Endpoint::kCompletions;

TEST(ParseRequest, DefaultsAreThoseOfOpenAi) {
  for (const Endpoint endpoint : {kChat, kPlain}) {
    const ApiRequest parsed = Good(endpoint, R"({"unknown": [1], "temperature": null})");
    const SamplingParams& sampling = parsed.request.sampling;
    EXPECT_EQ(sampling.temperature, 1.0f);
    EXPECT_EQ(sampling.top_p, 1.0f);
    EXPECT_EQ(sampling.top_k, 0);
    EXPECT_EQ(sampling.min_p, 0.0f);
    EXPECT_EQ(sampling.repetition_penalty, 1.0f);
    EXPECT_EQ(sampling.num_logprobs, 0);
    EXPECT_EQ(parsed.request.n, 1u);
    EXPECT_FALSE(parsed.request.max_tokens || parsed.request.seed || parsed.has_logprobs);
    EXPECT_TRUE(parsed.request.cache.use);
  }
}

TEST(ParseRequest, ReadsEveryField) {
  const ApiRequest parsed = Good(kPlain, R"({
      "model": "m", "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "n": 2,
      "best_of": 3, "presence_penalty": -1, "frequency_penalty": 2, "repeat_penalty": 1.5,
      "repeat_last_n": -1, "logit_bias": {"65": -100, "66": 0.5}, "seed": 12, "max_tokens": 9,
      "stop": ["a", "", "b"], "stop_token_ids": [3], "logprobs": 4, "ignore_eos": true,
      "cache_prompt": false, "priority": -2, "user": "u", "stream": true,
      "stream_options": {"include_usage": true}})");
  const Request& request = parsed.request;
  EXPECT_EQ(TextOf(request.tokens), "Hi");
  EXPECT_EQ(parsed.model, "m");
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(request.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.repetition_window, -1);
  EXPECT_THAT(request.sampling.logit_bias,
              ElementsAre(std::pair(TokenId{65}, -100.0f), std::pair(TokenId{66}, 0.5f)));
  EXPECT_EQ(parsed.num_choices, 2u);
  EXPECT_EQ(request.n, 3u);
  EXPECT_EQ(request.seed, 12u);
  EXPECT_EQ(request.max_tokens, 9u);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_tokens, ElementsAre(TokenId{3}));
  EXPECT_TRUE(parsed.has_logprobs && request.ignore_end && !request.cache.use);
  EXPECT_EQ(request.sampling.num_logprobs, 4);
  EXPECT_EQ(request.priority, -2);
  EXPECT_TRUE(parsed.is_stream && parsed.has_stream_usage);
}

TEST(ParseRequest, ChatSpellsSomeFieldsItsOwnWay) {
  const ApiRequest parsed = Good(kChat, R"({"max_tokens": 5, "max_completion_tokens": 6, "n": 4,
      "logprobs": true, "top_logprobs": 20, "stop": "end", "repetition_penalty": 2, "best_of": "x",
      "tools": [{}], "tool_choice": "none", "response_format": {"type": "text"}, "grammar": ""})");
  EXPECT_EQ(parsed.request.max_tokens, 6u);
  EXPECT_EQ(parsed.request.n, 4u);
  EXPECT_TRUE(parsed.has_logprobs);
  EXPECT_EQ(parsed.request.sampling.num_logprobs, 20);
  EXPECT_THAT(parsed.request.stop, ElementsAre("end"));
  EXPECT_EQ(parsed.request.sampling.repetition_penalty, 2.0f);
}

TEST(ParseRequest, ZeroTopPKeepsTheBestTokenAlone) {
  const ApiRequest parsed = Good(kChat, R"({"top_p": 0})");
  EXPECT_GT(parsed.request.sampling.top_p, 0.0f);
  EXPECT_LT(parsed.request.sampling.top_p, 1e-30f);
}

TEST(ParseRequest, SeedsMayBeNegativeAndMinusOneIsNone) {
  EXPECT_EQ(Good(kChat, R"({"seed": -2})").request.seed, ~uint64_t{1});
  EXPECT_EQ(Good(kChat, R"({"seed": 18446744073709551615})").request.seed, ~uint64_t{0});
  EXPECT_FALSE(Good(kChat, R"({"seed": -1})").request.seed.has_value());
}

TEST(ParseRequest, EncodesTheConversation) {
  EXPECT_EQ(TextOf(Good(kChat, R"({"messages": [{"role": "developer", "content": "S"},
                                 {"role": "user", "content": "U"}]})")
                       .request.tokens),
            R"(system:"S";user:"U";assistant:)");
  EXPECT_EQ(TextOf(Good(kChat, R"({"add_generation_prompt": false,
                                   "chat_template_kwargs": {"x": 1}})")
                       .request.tokens),
            R"(user:"Hi";{"x":1})");
}

TEST(ParseRequest, ALastMessageOfTheAssistantIsGoneOnWith) {
  const auto prompt = [](const std::string& fields, const std::string& content) {
    const std::string body = "{" + fields +
                             R"("messages": [{"role": "user", "content": "U"},
                                             {"role": "assistant", "content": )" +
                             content + "}]}";
    return TextOf(Good(kChat, body.c_str()).request.tokens);
  };
  EXPECT_EQ(prompt("", R"("A")"), R"(user:"U";assistant:A)");
  EXPECT_EQ(prompt(R"("add_generation_prompt": false, "continue_final_message": true,)", R"("A")"),
            R"(user:"U";assistant:A)");
  EXPECT_EQ(prompt("", R"([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])"),
            "user:\"U\";assistant:A\n\nB");
  EXPECT_EQ(prompt(R"("continue_final_message": false,)", R"("A")"),
            R"(user:"U";assistant:"A";assistant:)");
}

TEST(ParseRequest, ToolArgumentsAreObjectsWhereTheTemplateTakesThem) {
  EXPECT_THAT(TextOf(Good(kChat, R"({"messages": [{"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"arguments": "{\"x\":1}"}}]}]})")
                         .request.tokens),
              HasSubstr(R"("arguments":{"x":1})"));
}

TEST(ParseRequest, TakesTokensAndALonePromptInAList) {
  EXPECT_EQ(TextOf(Good(kPlain, R"({"prompt": [72, 111]})").request.tokens), "Ho");
  EXPECT_EQ(TextOf(Good(kPlain, R"({"prompt": ["Ho"]})").request.tokens), "Ho");
  EXPECT_EQ(TextOf(Good(kPlain, R"({"prompt": [[72]]})").request.tokens), "H");
}

struct BadCase {
  Endpoint endpoint;
  const char* fields;
  const char* param;
  const char* message;
};

TEST(ParseRequest, NamesTheFieldThatIsWrong) {
  const BadCase cases[] = {
      {kChat, R"({"temperature": "hot"})", "temperature", "must be a number of at least 0"},
      {kChat, R"({"temperature": -1})", "temperature", "at least 0"},
      {kChat, R"({"temperature": 1e300})", "temperature", "at least 0"},
      {kChat, R"({"top_p": 1.5})", "top_p", "from 0 to 1"},
      {kChat, R"({"min_p": true})", "min_p", "from 0 to 1"},
      {kChat, R"({"top_k": 1.5})", "top_k", "must be an integer"},
      {kChat, R"({"presence_penalty": []})", "presence_penalty", "must be a number"},
      {kChat, R"({"repeat_penalty": 0})", "repeat_penalty", "above 0"},
      {kChat, R"({"n": 0})", "n", "from 1 to 128"},
      {kChat, R"({"n": 18446744073709551615})", "n", "from 1 to 128"},
      {kPlain, R"({"n": 3, "best_of": 2})", "best_of", "at least n"},
      {kChat, R"({"max_tokens": 0})", "max_tokens", "at least 1"},
      {kChat, R"({"max_completion_tokens": "9"})", "max_completion_tokens", "an integer"},
      {kChat, R"({"stop": 5})", "stop", "a string or an array"},
      {kChat, R"({"stop": ["a", 5]})", "stop", "a string or an array"},
      {kChat, R"({"stop_token_ids": [256]})", "stop_token_ids", "ids below 256"},
      {kChat, R"({"seed": 1.5})", "seed", "an integer"},
      {kChat, R"({"logprobs": 5})", "logprobs", "true or false"},
      {kChat, R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs", "from 0 to 20"},
      {kChat, R"({"top_logprobs": 2})", "top_logprobs", "needs logprobs"},
      {kPlain, R"({"logprobs": true})", "logprobs", "an integer"},
      {kChat, R"({"logit_bias": [1]})", "logit_bias", "an object"},
      {kChat, R"({"logit_bias": {"256": 1}})", "logit_bias", "no token id below 256"},
      {kChat, R"({"logit_bias": {"1x": 1}})", "logit_bias", "no token id"},
      {kChat, R"({"logit_bias": {"1": "a"}})", "logit_bias", "of token 1 must be a number"},
      {kChat, R"({"ignore_eos": 1})", "ignore_eos", "true or false"},
      {kChat, R"({"priority": "high"})", "priority", "an integer"},
      {kChat, R"({"user": 1})", "user", "a string"},
      {kChat, R"({"add_generation_prompt": true, "continue_final_message": true})",
       "continue_final_message", "cannot be true"},
      {kChat, R"({"continue_final_message": true})", "continue_final_message",
       "needs a last message"},
      {kChat,
       R"({"messages": [{"role": "assistant", "content": "a"},
                        {"role": "assistant", "content": "b"}]})",
       "messages", "two messages of the assistant"},
      {kChat, R"({"model": 1})", "model", "a string"},
      {kChat, R"({"stream_options": {"include_usage": 1}})", "include_usage", "true or false"},
      {kChat, R"({"messages": null})", "messages", "is missing"},
      {kChat, R"({"messages": [{"role": "user", "content": 1}]})", "messages[0].content", "string"},
      {kChat, R"({"messages": [{"role": "robot", "content": ""}]})", "messages", "no robots"},
      {kPlain, R"({"prompt": null})", "prompt", "is missing"},
      {kPlain, R"({"prompt": ""})", "prompt", "is empty"},
      {kPlain, R"({"prompt": {}})", "prompt", "a string or an array"},
      {kPlain, R"({"prompt": [1, 256]})", "prompt", "below 256"},
      {kPlain, R"({"prompt": [1, "a"]})", "prompt", "below 256"},
      {kChat, R"({"tool_choice": 5})", "tool_choice", "a string or an object"},
      {kChat, R"({"cache_salt": ""})", "cache_salt", "must not be empty"},
  };
  for (const BadCase& row : cases) {
    const ApiError error = Bad(row.endpoint, row.fields);
    EXPECT_EQ(error.param, row.param) << row.fields;
    EXPECT_THAT(error.message, HasSubstr(row.message)) << row.fields;
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
  }
}

TEST(ParseRequest, RefusesWhatIsNotThereYet) {
  const BadCase cases[] = {
      {kChat, R"({"tools": [{}]})", "tools", ""},
      {kChat, R"({"tools": [{}], "tool_choice": "auto"})", "tools", ""},
      {kChat, R"({"functions": [{}]})", "functions", ""},
      {kChat, R"({"response_format": {"type": "json_object"}})", "response_format", ""},
      {kPlain, R"({"grammar": "root ::= [a-z]"})", "grammar", ""},
      {kChat, R"({"modalities": ["text", "audio"]})", "modalities", ""},
      {kPlain, R"({"echo": true})", "echo", ""},
      {kPlain, R"({"suffix": "end"})", "suffix", ""},
      {kPlain, R"({"prompt": ["a", "b"]})", "prompt", ""},
      {kPlain, R"({"prompt": [[1], [2]]})", "prompt", ""},
      {kChat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0]", ""},
  };
  for (const BadCase& row : cases) {
    const ApiError error = Bad(row.endpoint, row.fields);
    EXPECT_EQ(error.param, row.param) << row.fields;
    EXPECT_THAT(error.message, HasSubstr("not offered yet")) << row.fields;
    EXPECT_EQ(error.code, "not_offered");
  }
}

TEST(ParseRequest, APromptAsLongAsTheContextIsRefusedWithTheNumbers) {
  const Json body = {{"prompt", std::string(1000, 'a')}};
  const auto result = Parse(kPlain, body);
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_NE(error, nullptr);
  const Json told = ErrorBody(*error)["error"];
  EXPECT_EQ(told["type"], "exceed_context_size_error");
  EXPECT_EQ(told["code"], "context_length_exceeded");
  EXPECT_EQ(told["n_prompt_tokens"], 1000);
  EXPECT_EQ(told["n_ctx"], 1000);
  EXPECT_THAT(told["message"].get<std::string>(), HasSubstr("exceeds the available context size"));
}

TEST(ParseRequest, ABodyIsAnObject) {
  const auto result = Parse(kChat, Json::array());
  ASSERT_TRUE(std::holds_alternative<ApiError>(result));
  EXPECT_EQ(ToJsonLine(ErrorBody(std::get<ApiError>(result))),
            R"({"error":{"message":"the body must be a JSON object",)"
            R"("type":"invalid_request_error","param":null,"code":null}})");
}

TEST(FindEndpoint, KnowsTwo) {
  EXPECT_EQ(FindEndpoint("/v1/chat/completions"), kChat);
  EXPECT_EQ(FindEndpoint("/v1/completions"), kPlain);
  EXPECT_FALSE(FindEndpoint("/v1/embeddings").has_value());
}

TEST(ToApiError, TellsTheClientsFaultFromOurs) {
  EXPECT_EQ(ToApiError({ErrorCode::kInvalidArgument, "x"}).status, 400);
  EXPECT_EQ(ToApiError({ErrorCode::kOutOfMemory, "x"}).status, 400);
  EXPECT_EQ(ToApiError({ErrorCode::kOverloaded, "x"}).status, 503);
  EXPECT_EQ(ToApiError({ErrorCode::kNonFinite, "x"}).status, 500);
}

}  // namespace
}  // namespace kvern::server
