#include "server/api/routes.h"

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

// Clients leave the version away, or put it where there is none.
bool IsPathOf(const Route& route, std::string_view path) {
  if (path == route.path) return true;
  if (route.path.starts_with(kVersion)) return path == route.path.substr(kVersion.size());
  return path.starts_with(kVersion) && path.substr(kVersion.size()) == route.path;
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

FoundRoute FindRoute(std::string_view method, std::string_view path) {
  FoundRoute found;
  for (const Route& route : kRoutes) {
    if (!IsPathOf(route, path)) continue;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      return {.route = &route};
    }
    if (!found.allowed.empty()) found.allowed += ", ";
    found.allowed += route.method;
  }
  return found;
}

}  // namespace kvern::server
