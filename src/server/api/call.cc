#include "server/api/call.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/anthropic.h"
#include "server/api/json_body.h"
#include "server/http/ascii.h"

namespace kvern::server {

HttpReply Call::Head(int status) const {
  trace->SetStatus(status);
  HttpReply reply{.status = status, .headers = CorsHeaders(request)};
  reply.headers.push_back({"x-request-id", id});
  return reply;
}

void Call::Reply(const nlohmann::ordered_json& body, int status) const {
  HttpReply reply = Head(status);
  reply.body = ToJsonLine(body);
  sink->Send(std::move(reply));
}

void Call::Fail(const ApiError& error) const {
  HttpReply reply = ErrorReply(error, error_form, id);
  std::ranges::move(Head(error.status).headers, std::back_inserter(reply.headers));
  sink->Send(std::move(reply));
}

Call Call::WithoutBody() const {
  return {.server = server,
          .request = {.method = request.method,
                      .path = request.path,
                      .query = request.query,
                      .headers = request.headers},
          .sink = sink,
          .caller = caller,
          .id = id,
          .trace = trace,
          .endpoint = endpoint,
          .parameter = parameter,
          .error_form = error_form};
}

std::optional<std::string> Call::VisibleTenant() const {
  if (server.keys->is_open() || caller.can_administer) return std::nullopt;
  return caller.tenant;
}

std::optional<std::string_view> Call::Query(std::string_view name) const {
  std::string_view rest = request.query;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name) {
      return equals == pair.npos ? std::string_view() : pair.substr(equals + 1);
    }
  }
  return std::nullopt;
}

std::optional<nlohmann::ordered_json> Call::ReadJson() const {
  auto parsed = ParseJson(request.body);
  if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
  Fail({.message = parsed.ok() ? "the body must be a JSON object" : parsed.error().message});
  return std::nullopt;
}

HttpReply ErrorReply(const ApiError& error, ErrorForm form, const std::string& request_id) {
  HttpReply reply{.status = error.status};
  reply.body = ToJsonLine(form == ErrorForm::kAnthropic ? AnthropicErrorBody(error, request_id)
                                                        : ErrorBody(error));
  // Clients try 429 and 5xx again.
  if (error.status == 429 || error.status == 503) {
    reply.headers.push_back({"Retry-After", std::to_string(error.retry_after_s)});
  }
  if (error.status == 500 || error.status == 501) {
    reply.headers.push_back({"x-should-retry", "false"});
  }
  return reply;
}

std::optional<std::string_view> KeyOf(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto header = request.Header("Authorization");
      header && EqualsIgnoringCase(header->substr(0, kBearer.size()), kBearer)) {
    return TrimAscii(header->substr(kBearer.size()));
  }
  return request.Header("X-Api-Key");
}

std::string CacheGroupOf(const std::string& share_group) { return "shared:" + share_group; }

void SetOwner(const Call& call, FieldReader& fields, kvern::Request& request) {
  const auto salt = fields.String("cache_salt");
  const ServerOptions& options = call.server.options;
  request.tenant = call.caller.tenant;
  // Nobody raises himself above what his key says.
  request.priority = call.server.keys->is_open()
                         ? request.priority
                         : std::min(request.priority, 0) + call.caller.priority;
  if (options.share_group) request.cache_group = CacheGroupOf(*options.share_group);
  request.cache_salt = salt;
}

}  // namespace kvern::server
