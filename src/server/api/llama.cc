#include "server/api/llama.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "engine/collect.h"
#include "server/api/answer_format.h"
#include "server/api/field_reader.h"
#include "server/api/json_body.h"
#include "server/api/openai_format.h"
#include "server/api/openai_parts.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

// What llama.cpp's clients leave away, as its documentation has it.
const std::pair<const char*, double> kLlamaDefaults[] = {
    {"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}};

constexpr double kMaxTopK = 1 << 30;

// Their names for fields that have another one here.
const std::pair<const char*, const char*> kLlamaNames[] = {{"n_predict", "max_tokens"},
                                                           {"n_probs", "logprobs"}};

// Biases may come as [[token, bias], …], where false forbids the token.
std::optional<ApiError> ReadBiasPairs(Json& body) {
  const auto found = body.find("logit_bias");
  if (found == body.end() || !found->is_array()) return std::nullopt;
  Json biases = Json::object();
  for (const Json& pair : *found) {
    const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() &&
                         (pair[1].is_number() || pair[1] == false);
    if (!is_pair)
      return BadField("logit_bias", "must be pairs of a token id and a number or false");
    biases[fmt::format("{}", pair[0].get<uint64_t>())] =
        pair[1].is_number() ? pair[1].get<double>() : -1e9;
  }
  *found = std::move(biases);
  return std::nullopt;
}

Json TokenIds(const std::vector<SampledToken>& tokens) {
  Json ids = Json::array();
  for (const SampledToken& token : tokens) ids.push_back(static_cast<uint32_t>(token.id));
  return ids;
}

class LlamaFormat final : public AnswerFormat {
 public:
  LlamaFormat(ApiRequest request, const ModelInfo& model, size_t prompt_tokens)
      : request_(std::move(request)),
        model_(model),
        prompt_tokens_(prompt_tokens),
        completions_(request_.request.n) {}

  std::string Whole(const Answer& answer) override {
    completions_ = answer.completions;
    Json results = Json::array();
    for (size_t i = 0; i < completions_.size(); ++i) results.push_back(Last(i, answer.report));
    return ToJsonLine(results.size() == 1 ? results[0] : results);
  }

  std::string Begin() override { return ""; }

  std::string Take(const Chunk& chunk) override {
    Completion& completion = completions_[chunk.completion];
    Collect(chunk, completion);
    if (chunk.tokens.empty()) return "";
    Json event = {{"index", chunk.completion},
                  {"content", chunk.text},
                  {"tokens", TokenIds(chunk.tokens)},
                  {"stop", false},
                  {"id_slot", 0},
                  {"tokens_predicted", completion.tokens.size()},
                  {"tokens_evaluated", prompt_tokens_}};
    AddProbabilities(chunk.tokens, event);
    return FormatEvent(ToJsonLine(event));
  }

  std::string Ping() override { return std::string(kPingComment); }

  std::string End(const Report& report) override {
    if (report.error) return FormatEvent(ToJsonLine(ErrorBody(ToApiError(*report.error))));
    std::string text;
    for (size_t i = 0; i < completions_.size(); ++i) {
      Json event = Last(i, report);
      event["content"] = "";
      event["tokens"] = Json::array();
      text += FormatEvent(ToJsonLine(event));
    }
    return text;
  }

 private:
  void AddProbabilities(const std::vector<SampledToken>& tokens, Json& body) const {
    if (!request_.has_logprobs || request_.request.sampling.num_logprobs == 0) return;
    body["completion_probabilities"] = ChatLogprobs(*model_.text, tokens)["content"];
  }

  Json Last(size_t index, const Report& report) const {
    const Completion& completion = completions_[index];
    const auto stop = FindStop(request_, *model_.text, completion);
    const char* const stop_type = completion.finish == FinishReason::kLength ? "limit"
                                  : stop                                     ? "word"
                                                                             : "eos";
    const SamplingParams& sampling = request_.request.sampling;
    Json body = {{"index", index},
                 {"content", completion.text},
                 {"tokens", TokenIds(completion.tokens)},
                 {"id_slot", 0},
                 {"stop", true},
                 {"model", request_.model},
                 {"tokens_predicted", completion.tokens.size()},
                 {"tokens_evaluated", report.prompt_tokens},
                 {"generation_settings",
                  {{"seed", report.seed},
                   {"temperature", sampling.temperature},
                   {"top_k", sampling.top_k},
                   {"top_p", sampling.top_p},
                   {"min_p", sampling.min_p},
                   {"stop", request_.request.stop}}},
                 {"has_new_line", completion.text.find('\n') != completion.text.npos},
                 {"truncated", false},
                 {"stop_type", stop_type},
                 {"stopping_word", stop.value_or("")},
                 {"tokens_cached", report.prompt_tokens + completion.tokens.size() - 1},
                 {"timings", TimingsOf(report)}};
    AddProbabilities(completion.tokens, body);
    if (index == 0) AddReceipt(report, body);
    return body;
  }

  const ApiRequest request_;
  const ModelInfo& model_;
  const size_t prompt_tokens_;
  std::vector<Completion> completions_;  // so far
};

}  // namespace

std::variant<ApiRequest, ApiError> ParseLlamaRequest(const Json& body, const ModelInfo& model) {
  Json asked = body;
  for (const auto& [name, value] : kLlamaDefaults) {
    if (!asked.contains(name) || asked[name].is_null()) asked[name] = value;
  }
  // Their numbers may be floats; one that is no integer is refused below.
  if (const Json& top_k = asked["top_k"]; top_k.is_number_float()) {
    const double value = top_k.get<double>();
    if (std::abs(value) < kMaxTopK) asked["top_k"] = static_cast<int64_t>(value);
  }
  for (const auto& [theirs, ours] : kLlamaNames) {
    if (asked.contains(theirs)) asked[ours] = asked[theirs];
  }
  if (auto error = ReadBiasPairs(asked)) return *std::move(error);
  auto parsed = ParseRequest(Endpoint::kCompletions, asked, model);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    for (const auto& [theirs, ours] : kLlamaNames) {
      if (error->param == ours && body.contains(theirs)) error->param = theirs;
    }
  }
  return parsed;
}

Json TimingsOf(const Report& report) {
  const double prompt_ms =
      static_cast<double>(report.ttft_us.value_or(0) - report.queue_us.value_or(0)) / 1e3;
  const double predicted_ms =
      static_cast<double>(report.total_us.value_or(0) - report.ttft_us.value_or(0)) / 1e3;
  const auto prompt_n = static_cast<double>(report.prompt_tokens - report.prompt.hit());
  const auto predicted_n = static_cast<double>(report.completion_tokens);
  const auto per_second = [](double tokens, double ms) { return ms > 0 ? tokens / ms * 1e3 : 0; };
  return {{"cache_n", report.prompt.hit()},
          {"prompt_n", report.prompt_tokens - report.prompt.hit()},
          {"prompt_ms", prompt_ms},
          {"prompt_per_second", per_second(prompt_n, prompt_ms)},
          {"predicted_n", report.completion_tokens},
          {"predicted_ms", predicted_ms},
          {"predicted_per_second", per_second(predicted_n, predicted_ms)}};
}

std::unique_ptr<AnswerFormat> MakeLlamaFormat(ApiRequest request, const ModelInfo& model,
                                              size_t prompt_tokens) {
  return std::make_unique<LlamaFormat>(std::move(request), model, prompt_tokens);
}

}  // namespace kvern::server
