// The endpoints that generate, and those that count the tokens that they would begin with.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/collect.h"
#include "server/api/answer_format.h"
#include "server/api/answer_info.h"
#include "server/api/anthropic.h"
#include "server/api/field_reader.h"
#include "server/api/llama.h"
#include "server/api/reply_parts.h"
#include "server/api/responses.h"
#include "server/api/routes.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPrompts = 128;  // of one body

void AddTimes(const Report& report, HttpReply& reply) {
  reply.headers.push_back({"x-kvern-cached-tokens", fmt::to_string(report.prompt.hit())});
  if (report.queue_us) {
    reply.headers.push_back({"x-kvern-queue-ms", fmt::format("{:.1f}", *report.queue_us / 1e3)});
  }
}

// Keeps everything until the end.
class WholeWriter final : public AnswerWriter {
 public:
  WholeWriter(const Call& call, size_t n, std::unique_ptr<AnswerFormat> format)
      : call_(call.WithoutBody()), format_(std::move(format)) {
    answer_.completions.resize(n);
  }

  void Take(const Chunk& chunk) override { Collect(chunk, answer_.completions[chunk.completion]); }

  void Ping() override {}

  void End(const Report& report) override {
    answer_.report = report;
    call_.trace->SetAnswer(report, answer_.completions[0].finish);
    if (const auto error = AnswerError(answer_)) return call_.Fail(*error);
    HttpReply reply = call_.Head(200);
    AddTimes(report, reply);
    reply.body = format_->Whole(answer_);
    call_.sink->Send(std::move(reply));
  }

 private:
  const Call call_;
  const std::unique_ptr<AnswerFormat> format_;
  Answer answer_;
};

// Says everything as it comes.
class StreamWriter final : public AnswerWriter {
 public:
  StreamWriter(const Call& call, std::unique_ptr<AnswerFormat> format, bool is_watching)
      : call_(call.WithoutBody()), format_(std::move(format)), is_watching_(is_watching) {}

  bool wants_reports() const override { return is_watching_; }

  void See(const Report& report) override {
    report_ = report;
    Tell();
  }

  void Take(const Chunk& chunk) override {
    // What fails before its first token still can have a status: End() says why.
    if (!has_begun_ && chunk.tokens.empty() && chunk.finish == FinishReason::kFailed) return;
    if (chunk.completion == 0 && chunk.finish) finish_ = chunk.finish;
    if (is_watching_) Watch(chunk);
    Begin();
    Write(format_->Take(chunk));
  }

  void Ping() override {
    Begin();
    Write(format_->Ping());
  }

  void End(const Report& report) override {
    call_.trace->SetAnswer(report, finish_);
    if (!has_begun_ && report.error) return call_.Fail(ToApiError(*report.error));
    Begin();
    Write(format_->End(report));
    call_.sink->End();
  }

 private:
  void Begin() {
    if (std::exchange(has_begun_, true)) return;
    HttpReply head = call_.Head(200);
    head.content_type = "text/event-stream";
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.headers.push_back({"X-Accel-Buffering", "no"});
    call_.sink->Begin(std::move(head));
    Write(format_->Begin());
  }

  void Write(std::string text) {
    if (!text.empty()) call_.sink->Write(std::move(text));
  }

  void Tell() {
    std::string text = format_->See(report_);
    if (text.empty()) return;
    Begin();
    Write(std::move(text));
  }

  // Goes on with the report of the first chunk, for the engine's would wait for a step.
  void Watch(const Chunk& chunk) {
    const int64_t now_us = call_.server.clock.now_us();
    const int64_t ttft_us = report_.ttft_us.value_or(report_.queue_us.value_or(0));
    if (!first_us_) {
      first_us_ = now_us;
      report_.completion_tokens = 0;
      report_.events.push_back({.kind = LifecycleEvent::Kind::kPrefill,
                                .time_us = ttft_us,
                                .amount = report_.prompt_tokens});
    }
    report_.completion_tokens += chunk.tokens.size();
    report_.total_us = ttft_us + now_us - *first_us_;
    Tell();
  }

  const Call call_;
  const std::unique_ptr<AnswerFormat> format_;
  const bool is_watching_;
  bool has_begun_ = false;
  std::optional<FinishReason> finish_;  // of completion 0
  Report report_;                       // the last, where it is watching
  std::optional<int64_t> first_us_;
};

// Errors: what is wrong with fields of the server's own.
std::optional<ApiError> ReadServerFields(const Call& call, const Json& body, ApiRequest& request) {
  FieldReader fields(body);
  SetOwner(call, fields, request.request);
  if (!fields.ok()) return fields.error();
  const std::string& name = call.serving().name;
  const auto& aliases = call.server.options.aliases;
  if (call.server.options.is_model_strict && !request.model.empty() && request.model != name &&
      std::ranges::find(aliases, request.model) == aliases.end()) {
    return ApiError{.status = 404,
                    .message = fmt::format("the model '{}' does not exist: this server has '{}'",
                                           request.model, name),
                    .param = "model",
                    .code = "model_not_found"};
  }
  if (request.model.empty()) request.model = name;
  if (request.is_stream && request.request.n > request.num_choices) {
    return BadField("best_of", "cannot be above n in a stream");
  }
  return std::nullopt;
}

using Parsed = std::variant<ApiRequest, ApiError>;
using MakeFormat = std::unique_ptr<AnswerFormat> (*)(ApiRequest, const ModelInfo&, const ReplyIds&,
                                                     size_t prompt_tokens);

void Generate(const Call& call, const Json& body, Parsed parsed, MakeFormat make_format) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.Fail(*error);
  auto& request = std::get<ApiRequest>(parsed);
  if (const auto error = ReadServerFields(call, body, request)) return call.Fail(*error);
  Request asked = request.request;
  const size_t n = asked.n;
  const bool is_stream = request.is_stream;
  const bool is_watching = request.llama.has_token_timings || request.llama.has_progress;
  request.request.tokens = {};  // the format has no use for them
  auto format =
      make_format(std::move(request), call.serving().info,
                  {.id = call.id, .created = static_cast<int64_t>(UnixNow())}, asked.tokens.size());
  std::unique_ptr<AnswerWriter> writer;
  if (is_stream) {
    writer = std::make_unique<StreamWriter>(call, std::move(format), is_watching);
  } else {
    writer = std::make_unique<WholeWriter>(call, n, std::move(format));
  }
  AnswerInfo info = AnswerInfoOf(call, asked);
  const Status status = call.server.live->Start(*call.serving().engine, std::move(asked), call.sink,
                                                std::move(writer), std::move(info));
  if (!status.ok()) call.Fail(ToApiError(status.error()));
}

void GenerateOpenAi(const Call& call, Endpoint endpoint) {
  const auto body = call.ReadJson();
  if (!body) return;
  Generate(call, *body, ParseRequest(endpoint, *body, call.serving().info),
           [](ApiRequest request, const ModelInfo& model, const ReplyIds& ids, size_t) {
             return MakeOpenAiFormat(std::move(request), model, ids);
           });
}

void GenerateLlama(const Call& call, const Json& body) {
  Generate(call, body, ParseLlamaRequest(body, call.serving().info),
           [](ApiRequest request, const ModelInfo& model, const ReplyIds&, size_t prompt_tokens) {
             return MakeLlamaFormat(std::move(request), model, prompt_tokens);
           });
}

// Replies with how many tokens the prompt has.
void CountTokens(const Call& call, const Parsed& parsed, Json reply) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.Fail(*error);
  reply["input_tokens"] = std::get<ApiRequest>(parsed).request.tokens.size();
  call.Reply(reply);
}

}  // namespace

AnswerInfo AnswerInfoOf(const Call& call, const Request& request) {
  const size_t num_head = std::min(request.tokens.size(), RequestLog::kHeadTokens);
  return {.id = call.id,
          .endpoint = call.endpoint,
          .tenant = call.caller.tenant,
          .created_unix_s = UnixNow(),
          .prompt_tokens = request.tokens.size(),
          .completions = request.n,
          .max_tokens = request.max_tokens,
          .prompt_head = {request.tokens.begin(), request.tokens.begin() + num_head}};
}

void HandleChatCompletions(const Call& call) { GenerateOpenAi(call, Endpoint::kChatCompletions); }
void HandleCompletions(const Call& call) { GenerateOpenAi(call, Endpoint::kCompletions); }

void HandleMessages(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  Generate(call, *body, ParseMessagesRequest(*body, call.serving().info),
           [](ApiRequest request, const ModelInfo& model, const ReplyIds& ids, size_t tokens) {
             return MakeAnthropicFormat(std::move(request), model, ids, tokens);
           });
}

void HandleResponses(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  Generate(call, *body, ParseResponsesRequest(*body, call.serving().info),
           [](ApiRequest request, const ModelInfo&, const ReplyIds& ids, size_t) {
             return MakeResponsesFormat(std::move(request), ids);
           });
}

void HandleLlamaCompletion(const Call& call) {
  auto body = call.ReadJson();
  if (!body) return;
  if (!HasSeveralPrompts(*body)) return GenerateLlama(call, *body);
  const Json prompts = std::exchange((*body)["prompt"], nullptr);
  if (prompts.size() > kMaxPrompts || (body->contains("stream") && (*body)["stream"] == true)) {
    return call.Fail(
        BadField("prompt",
                 fmt::format("may be several, at most {}, where stream is not true", kMaxPrompts)));
  }
  const auto parts = ReplyParts::Make(call, prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Call part = call.WithoutBody();
    part.sink = parts->SinkOf(i);
    part.id = fmt::format("{}-{}", call.id, i);
    part.trace = std::make_shared<RequestTrace>(call.server.log, call.server.clock,
                                                call.request.method, call.request.path, part.id);
    part.trace->SetTenant(call.caller.tenant);
    (*body)["prompt"] = prompts[i];
    GenerateLlama(part, *body);
  }
}

void HandleCountTokens(const Call& call) {
  auto body = call.ReadJson();
  if (!body) return;
  for (const char* const name : {"tool_choice", "function_call"}) {
    Json& choice = (*body)[name];  // they count, and are not called
    if (choice.is_null() || choice.is_string() || choice.is_object()) choice = "none";
  }
  CountTokens(call, ParseRequest(Endpoint::kChatCompletions, *body, call.serving().info),
              {{"object", "response.input_tokens"}});
}

void HandleCountResponseTokens(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  CountTokens(call, ParseResponsesRequest(*body, call.serving().info),
              {{"object", "response.input_tokens"}});
}

void HandleCountMessageTokens(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  CountTokens(call, ParseMessagesRequest(*body, call.serving().info, /*needs_max_tokens=*/false),
              Json::object());
}

}  // namespace kvern::server
