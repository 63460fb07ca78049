// Answers in the form of OpenAI's responses: a JSON object, or server-sent events with names.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/answer_format.h"
#include "server/api/json_body.h"
#include "server/api/openai_format.h"
#include "server/api/openai_parts.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(ApiRequest request, ReplyIds ids)
      : request_(std::move(request)), ids_(std::move(ids)) {}

  std::string Whole(const Answer& answer) override {
    completion_ = answer.completions.front();
    return ToJsonLine(Ended(answer.report));
  }

  std::string Begin() override {
    const Json response = Response("in_progress", Json::array());
    std::string text = Event("response.created", {{"response", response}});
    text += Event("response.in_progress", {{"response", response}});
    text += Event("response.output_item.added",
                  {{"output_index", 0}, {"item", Item("in_progress", Json::array())}});
    return text += PartEvent("response.content_part.added", {{"part", Part("")}});
  }

  std::string Take(const Chunk& chunk) override {
    completion_.text += chunk.text;
    if (chunk.finish) completion_.finish = *chunk.finish;
    if (chunk.text.empty()) return "";
    return PartEvent("response.output_text.delta",
                     {{"delta", chunk.text}, {"logprobs", Json::array()}});
  }

  std::string Ping() override { return std::string(kPingComment); }

  std::string End(const Report& report) override {
    if (report.error) {
      const ApiError error = ToApiError(*report.error);
      Json response = Response("failed", Json::array());
      response["error"] = {{"code", error.code.value_or("server_error")},
                           {"message", error.message}};
      return Event("response.failed", {{"response", std::move(response)}}) + FormatEvent("[DONE]");
    }
    const Json ended = Ended(report);
    std::string text = PartEvent("response.output_text.done",
                                 {{"text", completion_.text}, {"logprobs", Json::array()}});
    text += PartEvent("response.content_part.done", {{"part", Part(completion_.text)}});
    text += Event("response.output_item.done", {{"output_index", 0}, {"item", ended["output"][0]}});
    text += Event(is_cut() ? "response.incomplete" : "response.completed", {{"response", ended}});
    return text += FormatEvent("[DONE]");
  }

 private:
  bool is_cut() const { return completion_.finish != FinishReason::kStop; }
  std::string ItemId() const { return "msg_" + ids_.id; }

  static Json Part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  Json Item(const char* status, Json content) const {
    return {{"type", "message"},
            {"id", ItemId()},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json Response(const char* status, Json output) const {
    return {{"id", "resp_" + ids_.id},
            {"object", "response"},
            {"created_at", ids_.created},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", nullptr},
            {"metadata", Json::object()},
            {"model", request_.model},
            {"output", std::move(output)},
            {"parallel_tool_calls", false},
            {"temperature", request_.request.sampling.temperature},
            {"tool_choice", "none"},
            {"tools", Json::array()},
            {"top_p", request_.request.sampling.top_p},
            {"usage", nullptr}};
  }

  Json Ended(const Report& report) const {
    const char* const status = is_cut() ? "incomplete" : "completed";
    Json response =
        Response(status, Json::array({Item(status, Json::array({Part(completion_.text)}))}));
    if (is_cut()) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["usage"] = {{"input_tokens", report.prompt_tokens},
                         {"input_tokens_details", PromptDetails(report)},
                         {"output_tokens", report.completion_tokens},
                         {"output_tokens_details", {{"reasoning_tokens", 0}}},
                         {"total_tokens", report.prompt_tokens + report.completion_tokens}};
    AddReceipt(report, response);
    return response;
  }

  std::string Event(const char* type, const Json& fields) {
    Json event = {{"type", type}, {"sequence_number", num_events_++}};
    event.update(fields);
    return fmt::format("event: {}\ndata: {}\n\n", type, ToJsonLine(event));
  }

  std::string PartEvent(const char* type, const Json& fields) {
    Json part = {{"item_id", ItemId()}, {"output_index", 0}, {"content_index", 0}};
    part.update(fields);
    return Event(type, part);
  }

  const ApiRequest request_;
  const ReplyIds ids_;
  Completion completion_;  // so far; its text and finish
  size_t num_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeResponsesFormat(ApiRequest request, ReplyIds ids) {
  return std::make_unique<ResponsesFormat>(std::move(request), std::move(ids));
}

}  // namespace kvern::server
