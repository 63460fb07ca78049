// One request to an endpoint: on a worker's thread, or the connection's where the route is instant.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/api/api_error.h"
#include "server/api/field_reader.h"
#include "server/context.h"
#include "server/http/message.h"
#include "server/request_trace.h"

namespace kvern::server {

// Whose clients read the errors of an endpoint.
enum class ErrorForm { kOpenAi, kAnthropic };

struct Call {
  ServerContext& server;
  HttpRequest request;
  std::shared_ptr<HttpSink> sink;
  Caller caller;
  std::string id;  // "x-request-id"
  std::shared_ptr<RequestTrace> trace;
  std::string_view endpoint = {};  // the route's path
  std::string parameter = {};      // what stands for {id} there
  ErrorForm error_form = ErrorForm::kOpenAi;

  // The model. REQUIRES: the route is one that needs it.
  const Serving& serving() const { return *server.serving.load(); }

  // Headers that every reply to this request has.
  HttpReply Head(int status) const;
  void Reply(const nlohmann::ordered_json& body, int status = 200) const;
  void Fail(const ApiError& error) const;

  // For what outlives the handler: bodies are long.
  Call WithoutBody() const;

  // Whose requests and texts the caller may see. None: everybody's.
  std::optional<std::string> VisibleTenant() const;

  // "name=value" of the target's query; as it came.
  std::optional<std::string_view> Query(std::string_view name) const;

  // The body, an object; or none, and the call has failed.
  std::optional<nlohmann::ordered_json> ReadJson() const;
};

// The reply that tells of an error.
HttpReply ErrorReply(const ApiError& error, ErrorForm form = ErrorForm::kOpenAi,
                     const std::string& request_id = {});

// The key that a request brings: "Authorization: Bearer …" or "X-Api-Key".
std::optional<std::string_view> KeyOf(const HttpRequest& request);

// Request::cache_group of a sharing group.
std::string CacheGroupOf(const std::string& share_group);

// What the server sets of a request to the engine: whose it is, and who shares its blocks. The
// field "cache_salt" separates the caller's own prompts further.
void SetOwner(const Call& call, FieldReader& fields, Request& request);

}  // namespace kvern::server
