#include "server/api/api_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "server/api/json_body.h"
#include "server/api/schema_files.h"
#include "server/http/ascii.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kOpenApiVersion = "3.1.0";
constexpr const char* kStream = "text/event-stream";

struct Failure {
  int status;
  const char* description;
};
constexpr Failure kFailures[] = {
    {400, "The request is wrong: the error names the field"},
    {401, "No API key, or one that the server does not know"},
    {403, "The API key lacks the right, or a web page asks that may not"},
    {404, "It does not exist"},
    {413, "The body is too long"},
    {429, "The API key asks too often, or keeps too much: wait as Retry-After says"},
    {501, "Not offered"},
    {503, "The model is loading, or the server has too much to do: try again later"},
};

const char* RightName(Right right) {
  switch (right) {
    case Right::kNone:
      return "none";
    case Right::kInfer:
      return "infer";
    case Right::kInspect:
      return "inspect";
    case Right::kAdmin:
      return "admin";
  }
  return "";
}

bool FailsWith(const Route& route, int status, bool needs_key) {
  const bool has_body = !route.form.request.empty();
  switch (status) {
    case 400:
    case 403:
      return true;
    case 401:
      if (needs_key && route.right != Right::kNone) return true;
      break;
    case 429:
      if (route.right == Right::kInfer) return true;
      break;
    case 413:
      if (has_body) return true;
      break;
    case 503:
      if (has_body || route.needs_model) return true;
      break;
    default:
      break;
  }
  return std::ranges::count(route.form.statuses, status) > 0;
}

Json SchemaNamed(std::string_view name) {
  return {{"$ref", fmt::format("#/components/schemas/{}", name)}};
}

Json Content(std::string_view media_type, std::string_view schema) {
  Json content = Json::object();
  content[std::string(media_type)]["schema"] = SchemaNamed(schema);
  return content;
}

Json Replies(const Route& route, bool needs_key) {
  Json replies = Json::object();
  const RouteForm& form = route.form;
  if (!form.reply.empty()) {
    Json content = Content(form.media_type, form.reply);
    if (!form.event.empty()) content.update(Content(kStream, form.event));
    replies["200"] = {{"description", "OK"}, {"content", std::move(content)}};
  }
  const char* const error = route.error_form == ErrorForm::kAnthropic ? "AnthropicError" : "Error";
  for (const Failure& failure : kFailures) {
    if (!FailsWith(route, failure.status, needs_key)) continue;
    replies[fmt::to_string(failure.status)] = {{"description", failure.description},
                                               {"content", Content("application/json", error)}};
  }
  return replies;
}

// Those in braces.
Json PathParameters(std::string_view path) {
  Json parameters = Json::array();
  for (size_t begin = path.find('{'); begin != path.npos; begin = path.find('{', begin + 1)) {
    const std::string_view name = path.substr(begin + 1, path.find('}', begin) - begin - 1);
    parameters.push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  return parameters;
}

void AddQueryParameters(const Json& query, Json& parameters) {
  const Json required = query.value("required", Json::array());
  for (const auto& [name, schema] : query.at("properties").items()) {
    parameters.push_back({{"name", name},
                          {"in", "query"},
                          {"required", std::ranges::count(required, Json(name)) > 0},
                          {"schema", schema}});
  }
}

std::string OperationId(const Route& route) {
  std::string id = fmt::format("{}{}", route.method, route.path);
  std::erase_if(id, [](char c) { return c == '{' || c == '}'; });
  for (char& c : id) {
    const char lower = ToLowerAscii(c);
    c = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ? lower : '_';
  }
  return id;
}

Json Operation(const Route& route, const Json& schemas, bool needs_key) {
  Json operation = {{"summary", route.summary}, {"operationId", OperationId(route)}};
  const bool is_secured = needs_key && route.right != Right::kNone;
  if (is_secured) {
    operation["description"] = fmt::format("Needs the right {}.", RightName(route.right));
    // Either of them.
    operation["security"] = Json::array({{{"bearer", Json::array()}}, {{"key", Json::array()}}});
  }
  Json parameters = PathParameters(route.path);
  if (!route.form.query.empty()) {
    AddQueryParameters(schemas.at(std::string(route.form.query)), parameters);
  }
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!route.form.request.empty()) {
    operation["requestBody"] = {{"required", true},
                                {"content", Content("application/json", route.form.request)}};
  }
  operation["responses"] = Replies(route, needs_key);
  return operation;
}

}  // namespace

Json ApiSchemas() {
  Json schemas = Json::object();
  for (const std::string_view text : SchemaFiles()) {
    const auto file = ParseJson(text);
    CHECK(file.ok() && file->is_object());
    for (const auto& [name, schema] : file->items()) {
      CHECK(!schemas.contains(name));
      schemas[name] = schema;
    }
  }
  return schemas;
}

Json ApiDocument(std::span<const Route> routes, bool needs_key) {
  Json schemas = ApiSchemas();
  Json paths = Json::object();
  for (const Route& route : routes) {
    std::string method(route.method);
    std::ranges::transform(method, method.begin(), ToLowerAscii);
    paths[std::string(route.path)][method] = Operation(route, schemas, needs_key);
  }
  Json components = {{"schemas", std::move(schemas)}};
  if (needs_key) {
    components["securitySchemes"] = {
        {"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
        {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}};
  }
  return {{"openapi", kOpenApiVersion},
          {"info",
           {{"title", "Kvern"},
            {"version", "1"},
            {"description",
             "Each path may be used without its /v1, or with one where it has none. Fields that "
             "are not named here are ignored."}}},
          {"paths", std::move(paths)},
          {"components", std::move(components)}};
}

void HandleApiDocument(const Call& call) {
  const auto make = [](bool needs_key) { return ToJsonLine(ApiDocument(Routes(), needs_key)); };
  static const std::string with_keys = make(true), without_keys = make(false);
  HttpReply reply = call.Head(200);
  reply.body = call.server.keys->is_open() ? without_keys : with_keys;
  call.sink->Send(std::move(reply));
}

}  // namespace kvern::server
