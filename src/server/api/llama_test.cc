#include "server/api/llama.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "server/api/answer_format.h"
#include "server/api/api_test_util.h"
#include "server/api/llama_parts.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

class LlamaTest : public testing::Test {
 protected:
  std::variant<ApiRequest, ApiError> Parse(const char* body) const {
    return ParseLlamaRequest(Json::parse(body), model_);
  }

  ApiRequest Ok(const char* body) const {
    auto parsed = Parse(body);
    const auto* error = std::get_if<ApiError>(&parsed);
    EXPECT_EQ(error, nullptr) << error->message;
    return error == nullptr ? std::get<ApiRequest>(std::move(parsed)) : ApiRequest();
  }

  std::string ParamOf(const char* body) const {
    const auto parsed = Parse(body);
    const auto* error = std::get_if<ApiError>(&parsed);
    return error != nullptr ? error->param.value_or("none") : "no error";
  }

  std::string PromptOf(const char* body) const { return TextOf(Ok(body).request.tokens); }

  LetterText text_;
  ModelInfo model_{.text = &text_, .context = 64, .fingerprint = "0123"};
};

TEST_F(LlamaTest, APromptIsTextTokensOrBoth) {
  EXPECT_EQ(PromptOf(R"({"prompt": "ab"})"), "ab");
  EXPECT_EQ(PromptOf(R"({"prompt": [97, 98]})"), "ab");
  EXPECT_EQ(PromptOf(R"({"prompt": ["xy", 97, "z", 98]})"), "xyazb");
  EXPECT_EQ(PromptOf(R"({"prompt": {"prompt_string": "ab"}})"), "ab");
  EXPECT_EQ(ParamOf(R"({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}})"),
            "prompt.multimodal_data");
  EXPECT_EQ(ParamOf(R"({"prompt": {}})"), "prompt.prompt_string");
}

TEST_F(LlamaTest, SeveralPromptsAreTold) {
  for (const auto& [prompt, is_several] : {std::pair(R"("a")", false),
                                           {R"([1, 2])", false},
                                           {R"([1, "a"])", false},
                                           {R"(["a", "b"])", true},
                                           {R"([[1], "b"])", true},
                                           {R"([[1], {"prompt_string": "b"}])", true}}) {
    EXPECT_EQ(HasSeveralPrompts({{"prompt", Json::parse(prompt)}}), is_several) << prompt;
  }
}

TEST_F(LlamaTest, DefaultsAreTheServersThenLlamas) {
  EXPECT_EQ(Ok(R"({"prompt": "a"})").request.sampling.top_k, 40);
  model_.defaults = {.top_k = 7, .seed = 42, .max_tokens = 9};
  const ApiRequest request = Ok(R"({"prompt": "a", "n_predict": -1})");
  EXPECT_EQ(request.request.sampling.top_k, 7);
  EXPECT_EQ(request.request.sampling.temperature, 0.8f);
  EXPECT_EQ(request.request.seed, 42u);
  EXPECT_EQ(request.request.max_tokens, 9u);
  EXPECT_EQ(Ok(R"({"prompt": "a", "n_predict": 33})").request.max_tokens, 33u);
  EXPECT_EQ(Ok(R"({"prompt": "a", "seed": -1})").request.seed, std::nullopt);
}

TEST_F(LlamaTest, AnAnswerFitsIntoTheContextAndIsTruncatedThere) {
  EXPECT_EQ(Ok(R"({"prompt": "abcd", "n_predict": 99})").request.max_tokens, 60u);
  const ApiRequest request = Ok(R"({"prompt": "abcd"})");
  EXPECT_EQ(request.request.max_tokens, 60u);
  for (const size_t length : {59, 60}) {
    Answer answer{.completions = {Say(std::string(length, 'x'), -1)}, .report = {}};
    answer.completions[0].finish = FinishReason::kLength;
    const Json body = Json::parse(MakeLlamaFormat(request, model_, 4)->Whole(answer));
    EXPECT_EQ(body["truncated"], length == 60);
  }
}

TEST_F(LlamaTest, BiasesAreOfIdsOrOfTexts) {
  using Biases = std::vector<std::pair<TokenId, float>>;
  const Biases expected = {{TokenId{97}, -1.0f}, {TokenId{98}, -1.0f}};
  for (const char* const biases :
       {R"([[97, -1], [98, -1]])", R"([["ab", -1]])", R"({"97": -1, "98": -1})", R"({"ab": -1})"}) {
    const std::string body = std::string(R"({"prompt": "a", "logit_bias": )") + biases + "}";
    EXPECT_EQ(Ok(body.c_str()).request.sampling.logit_bias, expected) << biases;
  }
  EXPECT_EQ(ParamOf(R"({"prompt": "a", "logit_bias": [[1]]})"), "logit_bias");
  EXPECT_EQ(ParamOf(R"({"prompt": "a", "logit_bias": [[1, "x"]]})"), "logit_bias");
}

TEST_F(LlamaTest, OnlyTheFieldsThatAreAskedForAreTold) {
  const ApiRequest request = Ok(R"({"prompt": "ab", "n_predict": 3,
             "response_fields": ["content", "generation_settings/n_predict", "nothing/at/all"]})");
  const auto format = MakeLlamaFormat(request, model_, 2);
  const Answer answer{.completions = {Say("xyz", -1)}, .report = {}};
  EXPECT_EQ(Json::parse(format->Whole(answer)),
            Json({{"content", "xyz"}, {"generation_settings/n_predict", 3}}));
}

TEST_F(LlamaTest, AnEndThatIsIgnoredIsABiasOfNever) {
  const Json settings = GenerationSettings(Ok(R"({"prompt": "a", "ignore_eos": true})"), 5);
  EXPECT_EQ(settings["logit_bias"], Json::parse(R"([{"bias": null, "token": 0}])"));
  EXPECT_EQ(settings["seed"], 5);
  EXPECT_EQ(GenerationSettings(Ok(R"({"prompt": "a"})"), 5)["logit_bias"], Json::array());
}

TEST_F(LlamaTest, SampledProbabilitiesAreThoseThatAreLeft) {
  ApiRequest request = Ok(R"({"prompt": "a", "n_probs": 2, "post_sampling_probs": true,
                              "temperature": 0.5, "top_p": 1, "min_p": 0, "top_k": 3})");
  EXPECT_EQ(request.request.sampling.num_logprobs, 3);
  const SampledToken token{.id = TokenId{'b'},
                           .logprob = std::log(0.25f),
                           .top = {{TokenId{'a'}, std::log(0.5f)},
                                   {TokenId{'b'}, std::log(0.25f)},
                                   {TokenId{'c'}, std::log(0.125f)}}};
  // At temperature 0.5 probabilities are squared: 16 : 4 : 1.
  Json entry = TokenProbabilities(request, text_, {&token, 1})[0];
  EXPECT_NEAR(entry["prob"].get<double>(), 4.0 / 21, 1e-6);
  ASSERT_EQ(entry["top_probs"].size(), 2u);
  EXPECT_NEAR(entry["top_probs"][0]["prob"].get<double>(), 16.0 / 21, 1e-6);
  request.request.sampling.min_p = 0.2f;  // leaves two
  entry = TokenProbabilities(request, text_, {&token, 1})[0];
  EXPECT_NEAR(entry["prob"].get<double>(), 0.2, 1e-6);
  request.request.sampling.top_p = 0.1f;  // one alone, though the other was drawn
  entry = TokenProbabilities(request, text_, {&token, 1})[0];
  EXPECT_EQ(entry["top_probs"].size(), 1u);
  EXPECT_EQ(ParamOf(R"({"prompt": "a", "n_probs": 2, "post_sampling_probs": true, "top_k": 0})"),
            "post_sampling_probs");
}

TEST(Timings, TheFirstTokenComesWithThePrompt) {
  Report report{.prompt_tokens = 10, .completion_tokens = 5};
  report.prompt.ram = 6;
  report.queue_us = 1'000;
  report.ttft_us = 3'000;
  report.total_us = 7'000;
  EXPECT_EQ(TimingsOf(report), Json::parse(R"({
      "cache_n": 6, "prompt_n": 4, "prompt_ms": 2.0, "prompt_per_token_ms": 0.5,
      "prompt_per_second": 2000.0, "predicted_n": 5, "predicted_ms": 4.0,
      "predicted_per_token_ms": 1.0, "predicted_per_second": 1000.0})"));
  report.completion_tokens = 1;
  EXPECT_EQ(TimingsOf(report)["predicted_per_second"], 0.0);
  EXPECT_EQ(TimingsOf({.prompt_tokens = 3})["prompt_ms"], 0.0);
}

TEST(PromptProgress, TellsEachStepOnce) {
  using Kind = LifecycleEvent::Kind;
  PromptProgress progress;
  Report report{.prompt_tokens = 100};
  report.events = {{.kind = Kind::kQueued, .time_us = 0, .amount = 100}};
  EXPECT_TRUE(progress.Take(report).empty());
  report.prompt.ram = 30;
  report.events.push_back({.kind = Kind::kAdmitted, .time_us = 1'000, .amount = 30});
  report.events.push_back({.kind = Kind::kPrefill, .time_us = 5'000, .amount = 80});
  auto news = progress.Take(report);
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0]["prompt_progress"]["processed"], 30);
  EXPECT_EQ(news[0]["timings"]["prompt_n"], 0);
  EXPECT_EQ(news[0]["timings"]["prompt_ms"], 0.0);
  EXPECT_EQ(news[1]["prompt_progress"],
            Json::parse(R"({"total": 100, "cache": 30, "processed": 80, "time_ms": 4.0})"));
  EXPECT_TRUE(progress.Take(report).empty());
  // What was preempted begins again, and is told when it is further.
  report.events.push_back({.kind = Kind::kPrefill, .time_us = 7'000, .amount = 64});
  report.events.push_back({.kind = Kind::kPrefill, .time_us = 9'000, .amount = 100});
  news = progress.Take(report);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0]["prompt_progress"]["processed"], 100);
}

}  // namespace
}  // namespace kvern::server
