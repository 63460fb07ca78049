// What the endpoints of one server share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kvern/engine.h"
#include "server/api/openai.h"
#include "server/auth/key_ring.h"
#include "server/auth/rate_limiter.h"
#include "server/cached_prompts.h"
#include "server/history.h"
#include "server/http/origin_check.h"
#include "server/live_answers.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/worker_pool.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvern::server {

struct ServerOptions {
  std::string alias = {};        // what the model is called; empty: as its file says
  bool is_model_strict = false;  // a request for another model is refused
  // Whose prompts share blocks: those of all tenants. None: each tenant's among themselves.
  std::optional<std::string> share_group = {};
  OriginRules origins = {};
  size_t num_workers = 2;
  int64_t ping_us = 15'000'000;  // a stream that says nothing for so long says a comment
  bool has_json_log = false;
  size_t log_points = 12;  // of the history that a line sums up, while there is work; 0: no lines
};

// The model, once it is loaded.
struct Serving {
  Engine* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  // null: it has none
  std::string template_source = {};
  std::unique_ptr<ModelText> text = {};
  std::string name = {};
  int64_t loaded_unix_s = 0;
  EngineOptions options = {};  // what the engine was opened with
  ModelInfo info = {};
};

struct ServerContext {
  const ServerOptions options;
  const std::unique_ptr<KeyRing> keys;
  const Clock& clock;
  const std::string id_prefix;  // of requests
  std::atomic<uint64_t> num_requests{0};
  std::atomic<const Serving*> serving{nullptr};  // null: it loads
  std::atomic<bool> is_draining{false};
  ServerLog log{stderr, options.has_json_log};
  Metrics metrics = {};
  RequestLog requests = {};
  CachedPrompts cached_prompts = {};
  RateLimiter rates{clock};
  History history{clock};
  const int64_t begin_us = clock.now_us();
  std::unique_ptr<WorkerPool> pool = std::make_unique<WorkerPool>(options.num_workers);
  std::unique_ptr<LiveAnswers> live = std::make_unique<LiveAnswers>(
      clock, *pool, std::vector<AnswerObserver*>{&metrics, &requests, &history}, options.ping_us);
};

}  // namespace kvern::server
