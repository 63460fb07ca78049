// Answers in the form of Anthropic's messages: a JSON object, or server-sent events with names.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/collect.h"
#include "server/api/answer_format.h"
#include "server/api/anthropic.h"
#include "server/api/cache_marks.h"
#include "server/api/json_body.h"
#include "server/api/openai_parts.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kFiveMinutesUs = 300'000'000;

// Why it ended, and which of the stops it was.
std::pair<std::string, std::optional<std::string>> StopOf(const ApiRequest& request,
                                                          const ModelInfo& model,
                                                          const Completion& completion) {
  if (completion.finish != FinishReason::kStop) return {"max_tokens", std::nullopt};
  auto stop = FindStop(request, *model.text, completion);
  return {stop ? "stop_sequence" : "end_turn", std::move(stop)};
}

// Tokens that spans keep from now on, by how long: each counts for the shortest that has it.
Json CacheCreation(const std::vector<CacheSpan>& spans, const Report& report) {
  size_t minutes5 = 0, hour = 0, counted = report.prompt.hit();
  for (size_t i = 0; i < std::min(spans.size(), report.spans.size()); ++i) {
    const size_t end = std::max(report.spans[i].num_tokens, counted);
    (spans[i].ttl_us > kFiveMinutesUs ? hour : minutes5) += end - counted;
    counted = end;
  }
  return {{"ephemeral_5m_input_tokens", minutes5}, {"ephemeral_1h_input_tokens", hour}};
}

// Tokens that were found in the cache, or that are kept there from now on, are counted apart.
Json MessageUsage(const ApiRequest& request, const Report& report) {
  const size_t read = report.prompt.hit(), created = CreatedTokens(report);
  return {{"input_tokens", report.prompt_tokens - read - created},
          {"cache_creation_input_tokens", created},
          {"cache_read_input_tokens", read},
          {"cache_creation", CacheCreation(request.request.cache.spans, report)},
          {"output_tokens", report.completion_tokens},
          {"kvern_missed", MissedByReason(report.prompt)}};
}

std::string NamedEvent(const Json& event) {
  return fmt::format("event: {}\ndata: {}\n\n", event["type"].get<std::string>(),
                     ToJsonLine(event));
}

Json StopFields(const std::pair<std::string, std::optional<std::string>>& stop) {
  Json fields = {{"stop_reason", stop.first}, {"stop_sequence", nullptr}};
  if (stop.second) fields["stop_sequence"] = *stop.second;
  return fields;
}

class AnthropicFormat final : public AnswerFormat {
 public:
  AnthropicFormat(ApiRequest request, const ModelInfo& model, ReplyIds ids, size_t prompt_tokens)
      : request_(std::move(request)),
        model_(model),
        ids_(std::move(ids)),
        prompt_tokens_(prompt_tokens) {}

  std::string Whole(const Answer& answer) override;
  std::string Begin() override;
  std::string Take(const Chunk& chunk) override;
  std::string Ping() override;
  std::string End(const Report& report) override;

 private:
  const ApiRequest request_;
  const ModelInfo& model_;
  const ReplyIds ids_;
  const size_t prompt_tokens_;
  Completion completion_;  // so far
};

std::string AnthropicFormat::Whole(const Answer& answer) {
  const Completion& completion = answer.completions.front();
  Json body = {{"id", "msg_" + ids_.id},
               {"type", "message"},
               {"role", "assistant"},
               {"model", request_.model},
               {"content", Json::array({{{"type", "text"}, {"text", completion.text}}})}};
  body.update(StopFields(StopOf(request_, model_, completion)));
  body["usage"] = MessageUsage(request_, answer.report);
  AddReceipt(answer.report, body);
  return ToJsonLine(body);
}

std::string AnthropicFormat::Begin() {
  // What was found in the cache is told at the end.
  const Json message = {{"id", "msg_" + ids_.id},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"model", request_.model},
                        {"content", Json::array()},
                        {"stop_reason", nullptr},
                        {"stop_sequence", nullptr},
                        {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}}}};
  return NamedEvent({{"type", "message_start"}, {"message", message}}) +
         NamedEvent({{"type", "content_block_start"},
                     {"index", 0},
                     {"content_block", {{"type", "text"}, {"text", ""}}}});
}

std::string AnthropicFormat::Take(const Chunk& chunk) {
  Collect(chunk, completion_);
  if (chunk.text.empty()) return "";
  return NamedEvent({{"type", "content_block_delta"},
                     {"index", 0},
                     {"delta", {{"type", "text_delta"}, {"text", chunk.text}}}});
}

std::string AnthropicFormat::Ping() { return NamedEvent({{"type", "ping"}}); }

std::string AnthropicFormat::End(const Report& report) {
  if (report.error) {
    return NamedEvent(AnthropicErrorBody(ToApiError(*report.error), ids_.id));
  }
  Json delta = {{"type", "message_delta"},
                {"delta", StopFields(StopOf(request_, model_, completion_))},
                {"usage", MessageUsage(request_, report)}};
  AddReceipt(report, delta);
  return NamedEvent({{"type", "content_block_stop"}, {"index", 0}}) + NamedEvent(delta) +
         NamedEvent({{"type", "message_stop"}});
}

}  // namespace

std::unique_ptr<AnswerFormat> MakeAnthropicFormat(ApiRequest request, const ModelInfo& model,
                                                  ReplyIds ids, size_t prompt_tokens) {
  return std::make_unique<AnthropicFormat>(std::move(request), model, std::move(ids),
                                           prompt_tokens);
}

}  // namespace kvern::server
