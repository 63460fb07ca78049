#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/api_test_util.h"
#include "server/api/openai.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

const LetterText kText;
const ModelInfo kModel = {.text = &kText, .context = 100, .fingerprint = "0123456789abcdef"};

ApiRequest Asked(Endpoint endpoint, size_t n = 1) {
  return {.endpoint = endpoint, .model = "m", .num_choices = n};
}

Answer AnswerOf(std::vector<Completion> completions) {
  Answer answer{.completions = std::move(completions), .report = {}};
  answer.report.prompt_tokens = 10;
  answer.report.prompt.ram = 4;
  answer.report.prompt.partial = 2;
  for (const Completion& completion : answer.completions) {
    answer.report.completion_tokens += completion.tokens.size();
  }
  return answer;
}

Json Reply(const ApiRequest& request, const Answer& answer) {
  return ResponseBody(request, answer, kModel, {.id = "7", .created = 5});
}

TEST(ResponseBody, ChatHasOpenAisForm) {
  Answer answer = AnswerOf({Say("Yes", -0.5f)});
  answer.report.receipt = R"({"digest": "d"})";
  EXPECT_EQ(Reply(Asked(Endpoint::kChatCompletions), answer), Json::parse(R"({
      "id": "chatcmpl-7", "object": "chat.completion", "created": 5, "model": "m",
      "system_fingerprint": "b-kvern-0123456789ab",
      "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes", "refusal": null},
                   "logprobs": null, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 0, "kvern_missed": {}}},
      "kvern_receipt": {"digest": "d"}})"));
}

TEST(ResponseBody, TokenIdsComeWhereTheyAreAskedFor) {
  ApiRequest request = Asked(Endpoint::kCompletions);
  request.has_token_ids = true;
  EXPECT_EQ(Reply(request, AnswerOf({Say("No", -1)}))["choices"][0]["token_ids"], Json({'N', 'o'}));
}

TEST(ResponseBody, CompletionsHaveTheirs) {
  Answer answer = AnswerOf({Say("Yes", -0.5f), Say("No", -1)});
  answer.completions[1].finish = FinishReason::kLength;
  EXPECT_EQ(Reply(Asked(Endpoint::kCompletions, 2), answer), Json::parse(R"({
      "id": "cmpl-7", "object": "text_completion", "created": 5, "model": "m",
      "system_fingerprint": "b-kvern-0123456789ab",
      "choices": [{"text": "Yes", "index": 0, "logprobs": null, "finish_reason": "stop"},
                  {"text": "No", "index": 1, "logprobs": null, "finish_reason": "length"}],
      "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 0, "kvern_missed": {}}}})"));
}

TEST(ResponseBody, ChatLogprobsHaveBytes) {
  ApiRequest request = Asked(Endpoint::kChatCompletions);
  request.has_logprobs = true;
  const Json body = Reply(request, AnswerOf({Say("\xc3\xa9", -0.5f, /*has_top=*/true)}));
  EXPECT_EQ(body["choices"][0]["logprobs"], Json::parse(R"({"content": [
      {"token": "\ufffd", "logprob": -0.5, "bytes": [195], "top_logprobs": [
        {"token": "x", "logprob": -0.25, "bytes": [120]},
        {"token": "y", "logprob": -1.5, "bytes": [121]}]},
      {"token": "\ufffd", "logprob": -0.5, "bytes": [169], "top_logprobs": [
        {"token": "x", "logprob": -0.25, "bytes": [120]},
        {"token": "y", "logprob": -1.5, "bytes": [121]}]}], "refusal": null})"));
}

TEST(ResponseBody, CompletionLogprobsCountCharacters) {
  ApiRequest request = Asked(Endpoint::kCompletions);
  request.has_logprobs = true;
  const Json body = Reply(request, AnswerOf({Say("a\xc3\xa9z", -0.5f)}));
  EXPECT_EQ(body["choices"][0]["logprobs"], Json::parse(R"({
      "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9", "z"],
      "token_logprobs": [-0.5, -0.5, -0.5, -0.5],
      "top_logprobs": [{}, {}, {}, {}], "text_offset": [0, 1, 1, 2]})"));
}

TEST(ResponseBody, CompletionLogprobsListTheChosenTokenToo) {
  ApiRequest request = Asked(Endpoint::kCompletions);
  request.has_logprobs = true;
  const float never = -std::numeric_limits<float>::infinity();
  const Json body = Reply(request, AnswerOf({Say("a", never, /*has_top=*/true)}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"],
            Json::parse(R"([{"x": -0.25, "y": -1.5, "a": -9999.0}])"));
}

TEST(ResponseBody, BestOfChoosesByMeanLogprob) {
  const ApiRequest request = Asked(Endpoint::kCompletions, 2);
  const Json body =
      Reply(request, AnswerOf({Say("bad", -3), Say("longbest", -1), Say("ok", -2), Say("x", -4)}));
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][0]["text"], "longbest");
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][1]["text"], "ok");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["usage"]["completion_tokens"], 14);
}

TEST(AnswerError, ACompletionThatFailedFailsTheRequest) {
  Answer answer = AnswerOf({Say("a", -1), Say("", -1)});
  EXPECT_FALSE(AnswerError(answer).has_value());
  answer.completions[1].finish = FinishReason::kFailed;
  EXPECT_EQ(AnswerError(answer)->status, 500);
  answer.report.error = Error{ErrorCode::kNonFinite, "logits are not finite"};
  EXPECT_EQ(AnswerError(answer)->message, "logits are not finite");
}

}  // namespace
}  // namespace kvern::server
