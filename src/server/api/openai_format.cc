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
  Json body = ResponseBody(request_, answer, model_, ids_);
  body["timings"] = TimingsOf(answer.report);
  if (request_.llama.is_verbose) body["__verbose"] = VerboseOf(request_, answer.report);
  return ToJsonLine(body);
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

// What a chunk says, or with a reason that its choice has ended.
Json OpenAiFormat::Choice(const Chunk& chunk, const char* finish) const {
  Json choice = {{"index", chunk.completion}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (finish != nullptr) choice["finish_reason"] = finish;
  if (request_.endpoint != Endpoint::kChatCompletions) {
    choice["text"] = finish != nullptr ? "" : chunk.text;
  } else {
    choice["delta"] = finish != nullptr ? Json::object() : Json({{"content", chunk.text}});
  }
  return choice;
}

std::string OpenAiFormat::Begin() {
  if (request_.endpoint != Endpoint::kChatCompletions) return "";
  std::string text;
  for (uint32_t i = 0; i < request_.num_choices; ++i) {
    Json choice = Choice({.completion = i}, nullptr);
    choice["delta"] = {{"role", "assistant"}, {"content", nullptr}};
    Json event = Event();
    event["choices"].push_back(std::move(choice));
    text += FormatEvent(ToJsonLine(event));
  }
  return text;
}

std::string OpenAiFormat::See(const Report& report) {
  seen_ = report;
  std::string text;
  if (!request_.llama.has_progress) return text;
  for (const Json& news : progress_.Take(report)) {
    Json event = Event();
    event["choices"].push_back(Choice({}, nullptr));
    event.update(news);
    text += FormatEvent(ToJsonLine(event));
  }
  return text;
}

std::string OpenAiFormat::Take(const Chunk& chunk) {
  const bool has_logprobs = request_.has_logprobs && !chunk.tokens.empty();
  const bool has_ids = request_.has_token_ids && !chunk.tokens.empty();
  std::string text;
  if (!chunk.text.empty() || has_logprobs || has_ids) {
    Json choice = Choice(chunk, nullptr);
    if (has_ids) choice["token_ids"] = TokenIds(chunk.tokens);
    if (request_.has_logprobs) {
      choice["logprobs"] = request_.endpoint == Endpoint::kChatCompletions
                               ? ChatLogprobs(*model_.text, chunk.tokens)
                               : logprobs_[chunk.completion].Take(chunk.tokens);
    }
    Json event = Event();
    event["choices"].push_back(std::move(choice));
    if (request_.llama.has_token_timings) event["timings"] = TimingsOf(seen_);
    text = FormatEvent(ToJsonLine(event));
  }
  // What has failed is told by End().
  if (!chunk.finish || *chunk.finish == FinishReason::kFailed) return text;
  const Chunk finish{.completion = chunk.completion, .finish = chunk.finish};
  if (++num_finished_ < request_.num_choices) return text + Finish(finish, nullptr);
  last_finish_ = finish;
  return text;
}

std::string OpenAiFormat::Finish(const Chunk& chunk, const Report* ended) const {
  Json event = Event();
  event["choices"].push_back(Choice(chunk, FinishName(*chunk.finish)));
  return ended != nullptr ? Last(std::move(event), *ended) : FormatEvent(ToJsonLine(event));
}

// The last event of an answer.
std::string OpenAiFormat::Last(Json event, const Report& report) const {
  event["timings"] = TimingsOf(report);
  if (request_.llama.is_verbose) event["__verbose"] = VerboseOf(request_, report);
  return FormatEvent(ToJsonLine(event));
}

std::string OpenAiFormat::End(const Report& report) {
  std::string text;
  const bool has_usage = request_.has_stream_usage && !report.error;
  if (last_finish_) text += Finish(*last_finish_, has_usage || report.error ? nullptr : &report);
  if (report.error) {
    text += FormatEvent(ToJsonLine(ErrorBody(ToApiError(*report.error))));
  } else if (has_usage) {
    Json event = Event();
    event["usage"] = UsageOf(report);
    AddReceipt(report, event);
    text += Last(std::move(event), report);
  }
  return text + FormatEvent("[DONE]");
}

std::unique_ptr<AnswerFormat> MakeOpenAiFormat(ApiRequest request, const ModelInfo& model,
                                               ReplyIds ids) {
  return std::make_unique<OpenAiFormat>(std::move(request), model, std::move(ids));
}

}  // namespace kvern::server
