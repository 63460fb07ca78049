#include "server/api/routes.h"

#include <optional>

namespace kvern::server {
namespace {

constexpr Route kRoutes[] = {
    {.method = "GET",
     .path = "/",
     .summary = "The dashboard, a page for browsers",
     .right = Right::kNone,
     .needs_model = false,
     .handle = HandleDashboard,
     .form = {.reply = "Text", .media_type = "text/html", .statuses = {404}}},
    {.method = "GET",
     .path = "/health",
     .summary = "Whether requests are served",
     .right = Right::kNone,
     .needs_model = false,
     .is_watch = true,
     .is_instant = true,
     .handle = HandleHealth,
     .form = {.reply = "Health", .statuses = {503}}},
    {.method = "GET",
     .path = "/openapi.json",
     .summary = "This document",
     .right = Right::kNone,
     .needs_model = false,
     .handle = HandleApiDocument,
     .form = {.reply = "ApiDocument"}},
    {.method = "GET",
     .path = "/v1/models",
     .summary = "The model, in a list",
     .handle = HandleModels,
     .form = {.reply = "Models"}},
    {.method = "GET",
     .path = "/props",
     .summary = "What the model and the server are like",
     .handle = HandleProps,
     .form = {.reply = "Props"}},
    {.method = "GET",
     .path = "/slots",
     .summary = "Which sequences run, in llama.cpp's form",
     .right = Right::kInspect,
     .handle = HandleSlots,
     .form = {.reply = "Slots", .statuses = {501}}},
    {.method = "GET",
     .path = "/metrics",
     .summary = "Counters and times, for Prometheus",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleMetrics,
     .form = {.reply = "Text", .media_type = "text/plain", .statuses = {501}}},
    {.method = "POST",
     .path = "/v1/chat/completions",
     .summary = "Goes on with a conversation",
     .handle = HandleChatCompletions,
     .form =
         {.request = "ChatRequest", .reply = "ChatReply", .event = "ChatEvent", .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/completions",
     .summary = "Goes on with a text",
     .handle = HandleCompletions,
     .form = {.request = "CompletionRequest",
              .reply = "CompletionReply",
              .event = "CompletionEvent",
              .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .summary = "How many tokens a conversation has",
     .handle = HandleCountTokens,
     .form = {.request = "ChatRequest", .reply = "TokenCount"}},
    {.method = "POST",
     .path = "/v1/responses",
     .summary = "Goes on with a conversation, in the form of OpenAI's responses",
     .handle = HandleResponses,
     .form = {.request = "ResponsesRequest",
              .reply = "ResponsesReply",
              .event = "ResponsesEvent",
              .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/responses/input_tokens",
     .summary = "How many tokens a conversation in that form has",
     .handle = HandleCountResponseTokens,
     .form = {.request = "ResponsesRequest", .reply = "TokenCount"}},
    {.method = "POST",
     .path = "/completion",
     .summary = "Goes on with a text, in llama.cpp's form",
     .handle = HandleLlamaCompletion,
     .form = {.request = "LlamaRequest",
              .reply = "LlamaReply",
              .event = "LlamaEvent",
              .statuses = {404}}},
    {.method = "POST",
     .path = "/completions",
     .summary = "The same, by its other name",
     .handle = HandleLlamaCompletion,
     .form = {.request = "LlamaRequest",
              .reply = "LlamaReply",
              .event = "LlamaEvent",
              .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/messages",
     .summary = "Goes on with a conversation, in Anthropic's form",
     .error_form = ErrorForm::kAnthropic,
     .handle = HandleMessages,
     .form = {.request = "MessagesRequest",
              .reply = "MessagesReply",
              .event = "MessagesEvent",
              .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .summary = "How many tokens a conversation in Anthropic's form has",
     .error_form = ErrorForm::kAnthropic,
     .handle = HandleCountMessageTokens,
     .form = {.request = "MessagesCountRequest", .reply = "TokenCount"}},
    {.method = "POST",
     .path = "/kv/explain",
     .summary = "What a prompt would find in the cache, and why not more",
     .right = Right::kInspect,
     .handle = HandleKvExplain,
     .form = {.request = "ExplainRequest", .reply = "ExplainReply"}},
    {.method = "GET",
     .path = "/kv",
     .summary = "KV memory in its four states, and what prompts found there",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleKv,
     .form = {.reply = "KvState"}},
    {.method = "GET",
     .path = "/kv/tree",
     .summary = "The caller's texts in the cache, as a tree",
     .right = Right::kInspect,
     .handle = HandleKvTree,
     .form = {.query = "KvTreeQuery", .reply = "KvTree"}},
    {.method = "POST",
     .path = "/kv/reset",
     .summary = "Evicts the caller's texts that nobody uses",
     .right = Right::kInspect,
     .handle = HandleKvReset,
     .form = {.reply = "KvReset"}},
    {.method = "POST",
     .path = "/v1/cache/prompts",
     .summary = "Computes a prompt ahead and keeps it",
     .handle = HandleCachePrompt,
     .form = {.request = "CachePromptRequest", .reply = "CachedPrompt"}},
    {.method = "GET",
     .path = "/v1/cache/prompts",
     .summary = "The prompts that are kept",
     .handle = HandleListCachedPrompts,
     .form = {.reply = "CachedPromptList"}},
    {.method = "GET",
     .path = "/v1/cache/prompts/{id}",
     .summary = "A prompt that is kept",
     .handle = HandleCachedPrompt,
     .form = {.reply = "CachedPrompt", .statuses = {404}}},
    {.method = "POST",
     .path = "/v1/cache/prompts/{id}",
     .summary = "Keeps a prompt for longer",
     .handle = HandleExtendCachedPrompt,
     .form = {.request = "ExtendRequest", .reply = "CachedPrompt", .statuses = {404}}},
    {.method = "DELETE",
     .path = "/v1/cache/prompts/{id}",
     .summary = "Keeps a prompt no longer",
     .handle = HandleDeleteCachedPrompt,
     .form = {.reply = "CachedPromptDeleted", .statuses = {404}}},
    {.method = "GET",
     .path = "/requests",
     .summary = "Answers on their way, and the last that have ended",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleRequests,
     .form = {.query = "RequestsQuery", .reply = "RequestList"}},
    {.method = "GET",
     .path = "/requests/{id}",
     .summary = "What happened to a request, and what it waits for",
     .right = Right::kInspect,
     .handle = HandleRequest,
     .form = {.reply = "RequestDetails", .statuses = {404}}},
    {.method = "DELETE",
     .path = "/requests/{id}",
     .summary = "Cancels a request",
     .handle = HandleCancelRequest,
     .form = {.reply = "Cancelled", .statuses = {404}}},
    {.method = "GET",
     .path = "/status",
     .summary = "What limits the server now, and what would help",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleStatus,
     .form = {.reply = "ServerStatus"}},
    {.method = "GET",
     .path = "/history",
     .summary = "How the server fared in the last quarter of an hour",
     .right = Right::kAdmin,
     .is_watch = true,
     .handle = HandleHistory,
     .form = {.query = "HistoryQuery", .reply = "History"}},
    {.method = "POST",
     .path = "/v1/embeddings",
     .summary = "Not offered",
     .needs_model = false,
     .handle = HandleNotOffered,
     .form = {.statuses = {501}}},
    {.method = "POST",
     .path = "/tokenize",
     .summary = "Tokens of a text",
     .handle = HandleTokenize,
     .form = {.request = "TokenizeRequest", .reply = "TokenizeReply"}},
    {.method = "POST",
     .path = "/detokenize",
     .summary = "The text of tokens",
     .handle = HandleDetokenize,
     .form = {.request = "DetokenizeRequest", .reply = "DetokenizeReply"}},
    {.method = "POST",
     .path = "/apply-template",
     .summary = "The prompt that a conversation becomes",
     .handle = HandleApplyTemplate,
     .form = {.request = "TemplateRequest", .reply = "TemplateReply"}},
};

constexpr std::string_view kVersion = "/v1";

constexpr std::string_view kParameter = "{id}";

// What stands for {id} where `path` is one of `pattern`; empty where that has none.
std::optional<std::string_view> Match(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with(kParameter)) return pattern == path ? std::optional("") : std::nullopt;
  pattern.remove_suffix(kParameter.size());
  if (!path.starts_with(pattern)) return std::nullopt;
  path.remove_prefix(pattern.size());
  return path.empty() || path.find('/') != path.npos ? std::nullopt : std::optional(path);
}

bool IsAnyPath(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (Match(route.path, path)) return true;
  }
  return false;
}

// Clients leave the version away, or put it where there is none.
std::optional<std::string_view> MatchOtherVersion(const Route& route, std::string_view path) {
  if (route.path.starts_with(kVersion)) return Match(route.path.substr(kVersion.size()), path);
  if (!path.starts_with(kVersion)) return std::nullopt;
  return Match(route.path, path.substr(kVersion.size()));
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

FoundRoute FindRoute(std::string_view method, std::string_view path) {
  FoundRoute found;
  const bool is_exact = IsAnyPath(path);
  for (const Route& route : kRoutes) {
    const auto parameter = is_exact ? Match(route.path, path) : MatchOtherVersion(route, path);
    if (!parameter) continue;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      return {.route = &route, .parameter = std::string(*parameter)};
    }
    if (!found.allowed.empty()) found.allowed += ", ";
    found.allowed += route.method;
    if (route.method == "GET") found.allowed += ", HEAD";
  }
  return found;
}

}  // namespace kvern::server
