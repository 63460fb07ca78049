// Routes: every endpoint is one row of the table in routes.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/api/call.h"

namespace kvern::server {

struct Route {
  std::string_view method;
  std::string_view path;
  std::string_view summary;
  Right right = Right::kInfer;
  bool needs_model = true;  // 503 while it loads
  ErrorForm error_form = ErrorForm::kOpenAi;
  bool is_watch = false;    // asked again and again by who watches: only failures are logged
  bool is_instant = false;  // answered where it is read, so that nothing makes it wait
  void (*handle)(const Call& call);
};

std::span<const Route> Routes();

struct FoundRoute {
  const Route* route = nullptr;  // null: none
  std::string parameter = {};    // what stands for {id}
  std::string allowed = {};      // methods of that path, where it is another one: "GET, POST"
};
FoundRoute FindRoute(std::string_view method, std::string_view path);

// The endpoints, by file. health.cc
void HandleHealth(const Call& call);
// models.cc
void HandleModels(const Call& call);
void HandleProps(const Call& call);
// dashboard.cc
void HandleDashboard(const Call& call);
// metrics_endpoint.cc
void HandleMetrics(const Call& call);
// kv_explain.cc
void HandleKvExplain(const Call& call);
// kv.cc
void HandleKv(const Call& call);
void HandleKvTree(const Call& call);
void HandleKvReset(const Call& call);
// cached_prompts.cc
void HandleCachePrompt(const Call& call);
void HandleListCachedPrompts(const Call& call);
void HandleCachedPrompt(const Call& call);
void HandleExtendCachedPrompt(const Call& call);
void HandleDeleteCachedPrompt(const Call& call);
// requests.cc
void HandleRequests(const Call& call);
void HandleRequest(const Call& call);
void HandleCancelRequest(const Call& call);
// status.cc
void HandleStatus(const Call& call);
void HandleHistory(const Call& call);
// generate.cc
void HandleChatCompletions(const Call& call);
void HandleCompletions(const Call& call);
void HandleMessages(const Call& call);
void HandleResponses(const Call& call);
void HandleLlamaCompletion(const Call& call);
void HandleCountTokens(const Call& call);
void HandleCountMessageTokens(const Call& call);
void HandleCountResponseTokens(const Call& call);
// tokenize.cc
void HandleTokenize(const Call& call);
void HandleDetokenize(const Call& call);
void HandleApplyTemplate(const Call& call);
// not_offered.cc
void HandleNotOffered(const Call& call);

}  // namespace kvern::server
