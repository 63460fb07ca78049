#include "server/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <random>
#include <thread>
#include <utility>

#include "engine/service.h"
#include "engine/verdict.h"
#include "server/api/routes.h"

namespace kvern::server {
namespace {

constexpr int64_t kDrainUs = 5'000'000;  // for clients to read the end
constexpr std::chrono::milliseconds kDrainPeriod(10);

bool IsPreflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && head.Header("Origin").has_value();
}

// As llama-server's: a page that may not use the server is told nothing.
HttpReply PreflightReply(const HttpRequest& head, bool is_allowed) {
  if (!is_allowed) return {.content_type = ""};
  HttpReply reply{.content_type = "", .headers = CorsHeaders(head)};
  reply.headers.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE"});
  const auto asked = head.Header("Access-Control-Request-Headers");
  if (asked) reply.headers.push_back({"Access-Control-Allow-Headers", std::string(*asked)});
  reply.headers.push_back({"Access-Control-Max-Age", "600"});
  return reply;
}

ApiError Unauthorized(const HttpRequest& head) {
  return {.status = 401,
          .type = "authentication_error",
          .message = KeyOf(head) ? "Invalid API Key: this server does not know it"
                                 : "an API key is needed: send Authorization: "
                                   "Bearer KEY",
          .code = "invalid_api_key"};
}

// Why a request is not served, before its body is read.
std::optional<ApiError> Refuse(const ServerContext& context, const HttpRequest& head,
                               const FoundRoute& found) {
  if (found.route == nullptr) {
    const std::string path = head.path.substr(0, 200);
    if (!found.allowed.empty())
      return ApiError{.status = 405, .message = path + ": use " + found.allowed};
    return ApiError{
        .status = 404, .type = "not_found_error", .message = path + ": no such endpoint"};
  }
  if (found.route->right != Right::kNone) {
    const auto caller = context.keys->Find(KeyOf(head));
    if (!caller) return Unauthorized(head);
    if (!caller->Has(found.route->right)) {
      return ApiError{
          .status = 403,
          .type = "permission_error",
          .message = "this API key may not do that: its line in the key file lacks the right"};
    }
  }
  if (found.route->needs_model && context.serving.load() == nullptr) {
    return ApiError{.status = 503, .type = "unavailable_error", .message = "Loading model"};
  }
  return std::nullopt;
}

std::string NextId(ServerContext& context) {
  return fmt::format("{}-{}", context.id_prefix, ++context.num_requests);
}

std::optional<HttpReply> CheckHead(ServerContext& context, const HttpRequest& head) {
  if (const auto problem = CheckOrigin(head, context.options.origins)) {
    if (IsPreflight(head) && IsServedHost(head, context.options.origins)) {
      return PreflightReply(head, /*is_allowed=*/false);
    }
    return ErrorReply({.status = 403, .type = "permission_error", .message = *problem});
  }
  if (IsPreflight(head)) return std::nullopt;
  const FoundRoute found = FindRoute(head.method, head.path);
  const auto error = Refuse(context, head, found);
  if (!error) return std::nullopt;
  const std::string id = NextId(context);
  RequestTrace(context.log, context.clock, head.method, head.path, id).SetStatus(error->status);
  HttpReply reply =
      ErrorReply(*error, found.route != nullptr ? found.route->error_form : ErrorForm::kOpenAi, id);
  reply.headers.push_back({"x-request-id", id});
  if (error->status == 405) reply.headers.push_back({"Allow", found.allowed});
  std::ranges::move(CorsHeaders(head), std::back_inserter(reply.headers));
  return reply;
}

std::optional<ApiError> RefuseForRate(const Call& call, const Route& route) {
  if (route.right != Right::kInfer || call.caller.rate == 0) return std::nullopt;
  const auto wait_us = call.server.rates.Take(call.caller.key, call.caller.rate);
  if (!wait_us) return std::nullopt;
  return ApiError{
      .status = 429,
      .type = "rate_limit_error",
      .message = fmt::format("this API key may ask {} times a minute: try again in {:.1f} s",
                             call.caller.rate, static_cast<double>(*wait_us) / 1e6),
      .code = "rate_limit_exceeded",
      .retry_after_s = static_cast<int>(std::min<int64_t>(*wait_us / 1'000'000 + 1, 86400))};
}

void Handle(const Route& route, const Call& call) {
  try {
    route.handle(call);
  } catch (const std::bad_alloc&) {
    call.Fail({.status = 503,
               .type = "server_error",
               .message = "out of memory: send less, or try again later"});
  } catch (const std::exception& exception) {
    call.Fail({.status = 500, .type = "server_error", .message = exception.what()});
  }
}

// What a time of some minutes was like, in one line.
void LogLoad(ServerContext& context, const engine::Load& load) {
  const EngineStats& stats = load.engine;
  const auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
  const auto percent = [](double share) { return 100 * share; };
  const engine::Verdict verdict = engine::Judge(load, context.serving.load()->options);
  const double budget = static_cast<double>(stats.kv.budget_bytes);
  context.log.Write(
      "interval",
      {{"requests", count(stats.requests)},
       {"refused", count(stats.refused)},
       {"prompt_tokens", count(stats.kv.prompts.hit() + stats.kv.prompts.missed())},
       {"found_tokens", count(stats.kv.prompts.hit())},
       {"new_tokens", count(stats.decoded_tokens)},
       {"running", count(stats.running)},
       {"waiting", count(stats.waiting + stats.waiting_prefix)},
       {"preemptions", count(stats.preemptions)},
       {"kv_active_percent", percent(static_cast<double>(stats.kv.bytes.active) / budget)},
       {"kv_cached_percent", percent(static_cast<double>(stats.kv.bytes.cached) / budget)},
       {"bound", std::string(ToString(verdict.bound))}});
}

// Unlike that of any other request, also after a restart.
std::string DrawIdPrefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

Server::Server(const ServeOptions& options, std::unique_ptr<KeyRing> keys, const Clock& clock)
    : context_{.options = options.server,
               .keys = std::move(keys),
               .clock = clock,
               .id_prefix = DrawIdPrefix()} {}

HttpCallbacks Server::MakeCallbacks() {
  HttpCallbacks callbacks;
  callbacks.check_head = [this](const HttpRequest& head) { return CheckHead(context_, head); };
  callbacks.make_error = [](int status, const std::string& message) {
    return ErrorReply({.status = status, .message = message});
  };
  callbacks.handle = [this](HttpRequest request, std::shared_ptr<HttpSink> sink) {
    if (IsPreflight(request)) return sink->Send(PreflightReply(request, /*is_allowed=*/true));
    FoundRoute found = FindRoute(request.method, request.path);
    const Route* const route = found.route;
    const std::string id = NextId(context_);
    auto trace = std::make_shared<RequestTrace>(context_.log, context_.clock, request.method,
                                                request.path, id);
    if (route->is_watch) trace->SetQuiet();
    const auto call = std::make_shared<Call>(Call{.server = context_,
                                                  .request = std::move(request),
                                                  .sink = std::move(sink),
                                                  .caller = {},
                                                  .id = id,
                                                  .trace = std::move(trace),
                                                  .endpoint = route->path,
                                                  .parameter = std::move(found.parameter),
                                                  .error_form = route->error_form});
    if (route->is_instant) return Handle(*route, *call);
    context_.pool->Post([call, route] {
      // A key may have gone since its request's head came.
      auto caller = call->server.keys->Find(KeyOf(call->request));
      if (route->right != Right::kNone && !caller) return call->Fail(Unauthorized(call->request));
      if (caller) call->caller = *std::move(caller);
      call->trace->SetTenant(call->caller.tenant);
      if (const auto error = RefuseForRate(*call, *route)) return call->Fail(*error);
      Handle(*route, *call);
    });
  };
  return callbacks;
}

Result<std::unique_ptr<Server>> Server::Listen(const ServeOptions& options,
                                               std::unique_ptr<KeyRing> keys, const Clock& clock) {
  std::unique_ptr<Server> server(new Server(options, std::move(keys), clock));
  KVERN_ASSIGN_OR_RETURN(
      server->http_, HttpServer::Listen(options.address, options.limits, server->MakeCallbacks()));
  return server;
}

Server::~Server() {
  if (http_) http_->Stop();
  CutOff();
  context_.live->WaitUntilNone();
  context_.pool.reset();  // after what it still does, which may use `live`
}

namespace {

size_t BytesPerBlock(const kv::KvCacheOptions& options) {
  size_t bytes = 0;
  for (const kv::GroupSpec& group : options.groups) bytes += group.block_bytes;
  return bytes;
}

// Gives the engine what the key file says of tenants. Errors: kInvalidArgument with the line.
Status SetQuotas(const Serving& serving, const ServerOptions& options,
                 std::span<const TenantQuota> quotas) {
  if (!quotas.empty() && options.share_group) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "line {}: kv_share and kv_floor are of blocks that one tenant has, and with "
                  "--share-prefixes all have them together: leave out the one or the other",
                  quotas[0].line);
  }
  const kv::KvCache& cache = EngineAccess::CacheOf(*serving.engine);
  const size_t block_bytes = BytesPerBlock(cache.options());
  const size_t block_tokens = cache.options().groups[0].block_tokens;
  const size_t capacity = cache.stats().budget_bytes / block_bytes * block_tokens;
  KVERN_ASSIGN_OR_RETURN(const auto tokens, ResolveQuotas(quotas, capacity));
  std::vector<kv::AccountQuota> rows;
  for (const TenantTokens& row : tokens) {
    kv::Quota quota{.floor_bytes = row.floor / block_tokens * block_bytes};
    if (row.share) quota.share_bytes = *row.share / block_tokens * block_bytes;
    rows.push_back({row.tenant, quota});
  }
  return EngineAccess::SetQuotas(*serving.engine, std::move(rows));
}

}  // namespace

Status Server::SetServing(const Serving& serving) {
  KVERN_RETURN_IF_ERROR(context_.keys->Check(
      [&](auto quotas) { return SetQuotas(serving, context_.options, quotas); }));
  context_.history.Start(
      [engine = serving.engine] { return engine->stats(); },
      [this, num_points = size_t{0}]() mutable {
        if (context_.options.log_points == 0 || ++num_points % context_.options.log_points != 0)
          return;
        const auto load = context_.history.LoadOfLast(context_.options.log_points);
        if (load && load->engine.steps > 0) LogLoad(context_, *load);
      });
  context_.serving = &serving;
  return {};
}

Status Server::Reload() {
  const Serving* const serving = context_.serving;
  KVERN_RETURN_IF_ERROR(context_.keys->Reload([&](auto quotas) {
    return serving != nullptr ? SetQuotas(*serving, context_.options, quotas) : Status();
  }));
  return http_->ReloadTls();
}

void Server::Drain() {
  context_.is_draining = true;
  http_->Drain();
  // Requests that a worker still reads become live answers meanwhile.
  int64_t busy_us = context_.clock.now_us();
  while (http_->counters().connections > 0 && context_.clock.now_us() - busy_us < kDrainUs) {
    if (context_.live->size() > 0) busy_us = context_.clock.now_us();
    std::this_thread::sleep_for(kDrainPeriod);
  }
}

void Server::CutOff() { context_.live->CancelAll(); }

std::string Server::url() const { return http_->url(); }
HttpCounters Server::counters() const { return http_->counters(); }

}  // namespace kvern::server
