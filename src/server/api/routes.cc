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
     .handle = HandleDashboard},
    {.method = "GET",
     .path = "/health",
     .summary = "Whether requests are served",
     .right = Right::kNone,
     .needs_model = false,
     .is_watch = true,
     .is_instant = true,
     .handle = HandleHealth},
    {.method = "GET",
     .path = "/v1/models",
     .summary = "The model, in a list",
     .handle = HandleModels},
    {.method = "GET",
     .path = "/props",
     .summary = "What the model and the server are like",
     .handle = HandleProps},
    {.method = "GET",
     .path = "/metrics",
     .summary = "Counters and times, for Prometheus",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleMetrics},
    {.method = "POST",
     .path = "/v1/chat/completions",
     .summary = "Goes on with a conversation",
     .handle = HandleChatCompletions},
    {.method = "POST",
     .path = "/v1/completions",
     .summary = "Goes on with a text",
     .handle = HandleCompletions},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .summary = "How many tokens a conversation has",
     .handle = HandleCountTokens},
    {.method = "POST",
     .path = "/v1/responses",
     .summary = "Goes on with a conversation, in the form of OpenAI's responses",
     .handle = HandleResponses},
    {.method = "POST",
     .path = "/v1/responses/input_tokens",
     .summary = "How many tokens a conversation in that form has",
     .handle = HandleCountResponseTokens},
    {.method = "POST",
     .path = "/completion",
     .summary = "Goes on with a text, in llama.cpp's form",
     .handle = HandleLlamaCompletion},
    {.method = "POST",
     .path = "/v1/messages",
     .summary = "Goes on with a conversation, in Anthropic's form",
     .error_form = ErrorForm::kAnthropic,
     .handle = HandleMessages},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .summary = "How many tokens a conversation in Anthropic's form has",
     .error_form = ErrorForm::kAnthropic,
     .handle = HandleCountMessageTokens},
    {.method = "POST",
     .path = "/kv/explain",
     .summary = "What a prompt would find in the cache, and why not more",
     .right = Right::kInspect,
     .handle = HandleKvExplain},
    {.method = "GET",
     .path = "/kv",
     .summary = "KV memory in its four states, and what prompts found there",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleKv},
    {.method = "GET",
     .path = "/kv/tree",
     .summary = "The caller's texts in the cache, as a tree",
     .right = Right::kInspect,
     .handle = HandleKvTree},
    {.method = "POST",
     .path = "/kv/reset",
     .summary = "Evicts the caller's texts that nobody uses",
     .right = Right::kInspect,
     .handle = HandleKvReset},
    {.method = "POST",
     .path = "/v1/cache/prompts",
     .summary = "Computes a prompt ahead and keeps it",
     .handle = HandleCachePrompt},
    {.method = "GET",
     .path = "/v1/cache/prompts",
     .summary = "The prompts that are kept",
     .handle = HandleListCachedPrompts},
    {.method = "GET",
     .path = "/v1/cache/prompts/{id}",
     .summary = "A prompt that is kept",
     .handle = HandleCachedPrompt},
    {.method = "POST",
     .path = "/v1/cache/prompts/{id}",
     .summary = "Keeps a prompt for longer",
     .handle = HandleExtendCachedPrompt},
    {.method = "DELETE",
     .path = "/v1/cache/prompts/{id}",
     .summary = "Keeps a prompt no longer",
     .handle = HandleDeleteCachedPrompt},
    {.method = "GET",
     .path = "/requests",
     .summary = "Answers on their way, and the last that have ended",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleRequests},
    {.method = "GET",
     .path = "/requests/{id}",
     .summary = "What happened to a request, and what it waits for",
     .right = Right::kInspect,
     .handle = HandleRequest},
    {.method = "DELETE",
     .path = "/requests/{id}",
     .summary = "Cancels a request",
     .handle = HandleCancelRequest},
    {.method = "GET",
     .path = "/status",
     .summary = "What limits the server now, and what would help",
     .right = Right::kInspect,
     .is_watch = true,
     .handle = HandleStatus},
    {.method = "GET",
     .path = "/history",
     .summary = "How the server fared in the last quarter of an hour",
     .right = Right::kAdmin,
     .is_watch = true,
     .handle = HandleHistory},
    {.method = "POST",
     .path = "/v1/embeddings",
     .summary = "Not offered",
     .needs_model = false,
     .handle = HandleNotOffered},
    {.method = "POST",
     .path = "/tokenize",
     .summary = "Tokens of a text",
     .handle = HandleTokenize},
    {.method = "POST",
     .path = "/detokenize",
     .summary = "The text of tokens",
     .handle = HandleDetokenize},
    {.method = "POST",
     .path = "/apply-template",
     .summary = "The prompt that a conversation becomes",
     .handle = HandleApplyTemplate},
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

// Clients leave the version away, or put it where there is none.
std::optional<std::string_view> MatchRoute(const Route& route, std::string_view path) {
  if (const auto parameter = Match(route.path, path)) return parameter;
  if (route.path.starts_with(kVersion)) return Match(route.path.substr(kVersion.size()), path);
  if (!path.starts_with(kVersion)) return std::nullopt;
  return Match(route.path, path.substr(kVersion.size()));
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

FoundRoute FindRoute(std::string_view method, std::string_view path) {
  FoundRoute found;
  for (const Route& route : kRoutes) {
    const auto parameter = MatchRoute(route, path);
    if (!parameter) continue;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      return {.route = &route, .parameter = std::string(*parameter)};
    }
    if (!found.allowed.empty()) found.allowed += ", ";
    found.allowed += route.method;
  }
  return found;
}

}  // namespace kvern::server
