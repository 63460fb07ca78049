#include "server/api/openai_format.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/json_body.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

std::string FormatEvent(std::string_view data) { return fmt::format("data: {}\n\n", data); }

OpenAiFormat::OpenAiFormat(ApiRequest request, const ModelInfo& model, ReplyIds ids)
    : request_(std::move(request)),
      model_(model),
      ids_(std::move(ids)),
      logprobs_(request_.num_choices, CompletionLogprobs(*model.text)) {}

std::string OpenAiFormat::Whole(const Answer& answer) {
  return ToJsonLine(ResponseBody(request_, answer, model_, ids_));
}

std::string OpenAiFormat::Ping() { return std::string(kPingComment); }

Json OpenAiFormat::Event() const {
  const bool is_chat = request_.endpoint == Endpoint::kChatCompletions;
  Json event =
      Envelope(request_, model_, ids_, is_chat ? "chat.completion.chunk" : "text_completion");
  event["choices"] = Json::array();
  if (request_.has_stream_usage) event["usage"] = nullptr;
  return event;
}

Json OpenAiFormat::Choice(size_t index) const {
  return {{"index", index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
}

std::string OpenAiFormat::Begin() {
  if (request_.endpoint != Endpoint::kChatCompletions) return "";
  std::string text;
  for (size_t i = 0; i < request_.num_choices; ++i) {
    Json choice = Choice(i);
    choice["delta"] = {{"role", "assistant"}, {"content", ""}};
    Json event = Event();
    event["choices"].push_back(std::move(choice));
    text += FormatEvent(ToJsonLine(event));
  }
  return text;
}

std::string OpenAiFormat::Take(const Chunk& chunk) {
  const bool is_chat = request_.endpoint == Endpoint::kChatCompletions;
  const bool has_logprobs = request_.has_logprobs && !chunk.tokens.empty();
  const bool has_ids = request_.has_token_ids && !chunk.tokens.empty();
  const bool has_failed = chunk.finish == FinishReason::kFailed;  // End() says why
  const bool has_finished = chunk.finish.has_value() && !has_failed;
  if (chunk.text.empty() && !has_logprobs && !has_ids && !has_finished) return "";
  Json choice = Choice(chunk.completion);
  if (is_chat) {
    choice["delta"] = Json::object();
    if (!chunk.text.empty() || has_logprobs || has_ids) choice["delta"]["content"] = chunk.text;
    if (has_logprobs) choice["logprobs"] = ChatLogprobs(*model_.text, chunk.tokens);
  } else {
    choice["text"] = chunk.text;
    if (has_logprobs) choice["logprobs"] = logprobs_[chunk.completion].Take(chunk.tokens);
  }
  if (has_ids) choice["token_ids"] = TokenIds(chunk.tokens);
  if (has_finished) choice["finish_reason"] = FinishName(*chunk.finish);
  Json event = Event();
  event["choices"].push_back(std::move(choice));
  return FormatEvent(ToJsonLine(event));
}

std::string OpenAiFormat::End(const Report& report) {
  std::string text;
  if (report.error) {
    text = FormatEvent(ToJsonLine(ErrorBody(ToApiError(*report.error))));
  } else if (request_.has_stream_usage) {
    Json event = Event();
    event["usage"] = UsageOf(report);
    AddReceipt(report, event);
    text = FormatEvent(ToJsonLine(event));
  }
  return text + FormatEvent("[DONE]");
}

std::unique_ptr<AnswerFormat> MakeOpenAiFormat(ApiRequest request, const ModelInfo& model,
                                               ReplyIds ids) {
  return std::make_unique<OpenAiFormat>(std::move(request), model, std::move(ids));
}

}  // namespace kvern::server
