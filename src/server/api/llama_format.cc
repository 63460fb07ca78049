// Answers in llama.cpp's own form: a JSON object, or server-sent events.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/collect.h"
#include "server/api/answer_format.h"
#include "server/api/json_body.h"
#include "server/api/llama_parts.h"
#include "server/api/openai_format.h"
#include "server/api/openai_parts.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

// Of an object, the fields of those names; "a/b" is field b of object a. Others are left away.
Json OnlyShown(const Json& body, const std::vector<std::string>& names) {
  if (names.empty()) return body;
  Json shown = Json::object();
  for (const std::string& name : names) {
    const Json* value = &body;
    for (size_t begin = 0; value != nullptr && begin <= name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      const auto found = value->find(name.substr(begin, end - begin));
      value = value->is_object() && found != value->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (value != nullptr) shown[name] = *value;
  }
  return shown;
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
    for (size_t i = 0; i < completions_.size(); ++i) {
      Json body = Last(i, answer.report);
      AddProbabilities(completions_[i].tokens, body);
      results.push_back(OnlyShown(body, request_.llama.shown));
    }
    return ToJsonLine(results.size() == 1 ? results[0] : results);
  }

  std::string Begin() override { return ""; }

  std::string See(const Report& report) override {
    seen_ = report;
    std::string text;
    if (!request_.llama.has_progress) return text;
    for (const Json& news : progress_.Take(report)) {
      Json event = Partial({});
      event.update(news);
      text += FormatEvent(ToJsonLine(event));
    }
    return text;
  }

  std::string Take(const Chunk& chunk) override {
    Collect(chunk, completions_[chunk.completion]);
    if (chunk.tokens.empty() && chunk.text.empty()) return "";
    Json event = Partial(chunk);
    AddProbabilities(chunk.tokens, event);
    if (request_.llama.has_token_timings) event["timings"] = TimingsOf(seen_);
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
      text += FormatEvent(ToJsonLine(OnlyShown(event, request_.llama.shown)));
    }
    return text;
  }

 private:
  Json Partial(const Chunk& chunk) const {
    return {{"index", chunk.completion},
            {"content", chunk.text},
            {"tokens", TokenIds(chunk.tokens)},
            {"stop", false},
            {"id_slot", 0},
            {"tokens_predicted", completions_[chunk.completion].tokens.size()},
            {"tokens_evaluated", prompt_tokens_}};
  }

  void AddProbabilities(const std::vector<SampledToken>& tokens, Json& body) const {
    if (request_.llama.num_probs == 0) return;
    body["completion_probabilities"] = TokenProbabilities(request_, *model_.text, tokens);
  }

  // Whether the context is full.
  bool IsTruncated(const Completion& completion) const {
    return completion.finish == FinishReason::kLength &&
           prompt_tokens_ + completion.tokens.size() >= model_.context;
  }

  Json Last(size_t index, const Report& report) const {
    const Completion& completion = completions_[index];
    const auto stop = FindStop(request_, *model_.text, completion);
    const char* const stop_type = completion.finish == FinishReason::kLength ? "limit"
                                  : stop                                     ? "word"
                                                                             : "eos";
    Json body = {
        {"index", index},
        {"content", completion.text},
        {"tokens", request_.llama.has_tokens ? TokenIds(completion.tokens) : Json::array()},
        {"id_slot", 0},
        {"stop", true},
        {"model", request_.model},
        {"tokens_predicted", completion.tokens.size()},
        {"tokens_evaluated", report.prompt_tokens},
        {"generation_settings", GenerationSettings(request_, report.seed)},
        {"prompt", request_.llama.prompt},
        {"has_new_line", completion.text.find('\n') != completion.text.npos},
        {"truncated", IsTruncated(completion)},
        {"stop_type", stop_type},
        {"stopping_word", stop.value_or("")},
        {"tokens_cached", report.prompt_tokens + completion.tokens.size() - 1},
        {"timings", TimingsOf(report)}};
    if (index == 0) AddReceipt(report, body);
    return body;
  }

  const ApiRequest request_;
  const ModelInfo& model_;
  const size_t prompt_tokens_;
  std::vector<Completion> completions_;  // so far
  PromptProgress progress_;
  Report seen_;  // the last
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeLlamaFormat(ApiRequest request, const ModelInfo& model,
                                              size_t prompt_tokens) {
  return std::make_unique<LlamaFormat>(std::move(request), model, prompt_tokens);
}

}  // namespace kvern::server
