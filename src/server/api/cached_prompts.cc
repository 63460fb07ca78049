// Prompts that are computed ahead and kept: made, listed, extended, let go.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/service.h"
#include "server/api/answer_info.h"
#include "server/api/inspect.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kDefaultTtlS = 3600, kMaxTtlS = 7 * 86400;

Json PromptBody(const CachedPrompt& prompt) {
  return {{"id", prompt.id},
          {"object", "cache.prompt"},
          {"tokens", prompt.tokens.size()},
          {"kept_tokens", prompt.kept_tokens},
          {"created_at", prompt.created_unix_s},
          {"expires_at", prompt.expires_unix_s}};
}

// Replies when the prompt has been computed; the one token that this brings goes nowhere.
class KeepWriter final : public AnswerWriter {
 public:
  KeepWriter(const Call& call, CachedPrompt prompt, int64_t ttl_s)
      : call_(call.WithoutBody()), prompt_(std::move(prompt)), ttl_s_(ttl_s) {}

  void Take(const Chunk&) override {}
  void Ping() override {}

  void End(const Report& report) override {
    call_.trace->SetAnswer(report, std::nullopt);
    if (report.error) return call_.Fail(ToApiError(*report.error));
    if (report.spans.empty()) return;  // cancelled: nobody listens
    prompt_.kept_tokens = report.spans.front().num_tokens;
    prompt_.expires_unix_s = UnixNow() + static_cast<double>(ttl_s_);
    Json body = PromptBody(prompt_);
    body["cached_tokens"] = report.prompt.hit();
    call_.server.cached_prompts.Put(std::move(prompt_));
    call_.Reply(body);
  }

 private:
  const Call call_;
  CachedPrompt prompt_;
  const int64_t ttl_s_;
};

// As the tenant itself asks, though an administrator may do it.
Request OwnerOf(const Call& call, const std::string& tenant) {
  Request owner = server::OwnerOf(call);
  owner.tenant = tenant;
  return owner;
}

int64_t ReadTtl(FieldReader& fields) {
  return fields.Integer("ttl_seconds", 1, kMaxTtlS).value_or(kDefaultTtlS);
}

void Keep(const Call& call, CachedPrompt prompt, int64_t ttl_s) {
  Request request = OwnerOf(call, prompt.tenant);
  request.priority = call.caller.priority;
  request.tokens = prompt.tokens;
  request.max_tokens = 1;
  request.seed = 0;
  request.cache.spans = {{.num_tokens = prompt.tokens.size(), .ttl_us = ttl_s * 1'000'000}};
  AnswerInfo info = AnswerInfoOf(call, request);
  const Status status = call.server.live->Start(
      *call.serving().engine, std::move(request), call.sink,
      std::make_unique<KeepWriter>(call, std::move(prompt), ttl_s), std::move(info));
  if (!status.ok()) call.Fail(ToApiError(status.error()));
}

// The one that the path names, or the call has failed.
std::optional<CachedPrompt> FindPrompt(const Call& call) {
  auto prompt = call.server.cached_prompts.Find(call.parameter, call.VisibleTenant(), UnixNow());
  if (!prompt) {
    call.Fail({.status = 404,
               .type = "not_found_error",
               .message = fmt::format("{}: no such prompt, or its time is over",
                                      call.parameter.substr(0, 80))});
  }
  return prompt;
}

}  // namespace

void HandleCachePrompt(const Call& call) {
  auto body = call.ReadJson();
  if (!body) return;
  FieldReader fields(*body);
  const int64_t ttl_s = ReadTtl(fields);
  if (!fields.ok()) return call.Fail(*fields.error());
  const bool is_chat = body->contains("messages");
  // What others will go on with has no turn of the assistant's yet.
  if (!body->contains("add_generation_prompt")) (*body)["add_generation_prompt"] = false;
  auto parsed = ParseRequest(is_chat ? Endpoint::kChatCompletions : Endpoint::kCompletions, *body,
                             call.serving().info);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.Fail(*error);
  const double now = UnixNow();
  if (!call.server.cached_prompts.HasRoom(call.caller.tenant, now)) {
    return call.Fail(
        {.status = 429,
         .type = "rate_limit_error",
         .message = fmt::format("{} prompts are kept, the most for a tenant: delete some",
                                CachedPrompts::kMaxPrompts),
         .code = "too_many_cached_prompts"});
  }
  Keep(call,
       {.id = "cache-" + call.id,
        .tenant = call.caller.tenant,
        .tokens = std::move(std::get<ApiRequest>(parsed).request.tokens),
        .kept_tokens = 0,
        .created_unix_s = now,
        .expires_unix_s = now},
       ttl_s);
}

void HandleExtendCachedPrompt(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  FieldReader fields(*body);
  const int64_t ttl_s = ReadTtl(fields);
  if (!fields.ok()) return call.Fail(*fields.error());
  auto prompt = FindPrompt(call);
  if (prompt) Keep(call, *std::move(prompt), ttl_s);
}

void HandleListCachedPrompts(const Call& call) {
  Json list = Json::array();
  for (const CachedPrompt& prompt :
       call.server.cached_prompts.List(call.VisibleTenant(), UnixNow())) {
    list.push_back(PromptBody(prompt));
  }
  call.Reply({{"object", "list"}, {"data", std::move(list)}});
}

void HandleCachedPrompt(const Call& call) {
  const auto prompt = FindPrompt(call);
  if (prompt) call.Reply(PromptBody(*prompt));
}

void HandleDeleteCachedPrompt(const Call& call) {
  const auto prompt = FindPrompt(call);
  if (!prompt) return;
  call.server.cached_prompts.Remove(prompt->id);
  EngineAccess::EndSpan(*call.serving().engine, OwnerOf(call, prompt->tenant), prompt->tokens);
  call.Reply({{"id", prompt->id}, {"object", "cache.prompt"}, {"deleted", true}});
}

}  // namespace kvern::server
