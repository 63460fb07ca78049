#include "server/api/api_document.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <variant>

#include "server/api/anthropic.h"
#include "server/api/api_test_util.h"
#include "server/api/llama.h"
#include "server/api/openai.h"
#include "server/api/responses.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchemaPath = "#/components/schemas/";

std::set<std::string> SchemaNames() {
  std::set<std::string> names;
  const Json schemas = ApiSchemas();
  for (const auto& [name, schema] : schemas.items()) names.insert(name);
  return names;
}

// Names of the schemas that `document` refers to.
void AddReferences(const Json& document, std::set<std::string>& names) {
  if (document.is_object() && document.contains("$ref")) {
    const auto path = document["$ref"].get<std::string>();
    EXPECT_TRUE(path.starts_with(kSchemaPath)) << path;
    names.insert(path.substr(kSchemaPath.size()));
  }
  if (!document.is_structured()) return;
  for (const Json& part : document) AddReferences(part, names);
}

TEST(ApiDocument, EveryRouteSaysWhatItTakesAndGives) {
  for (const Route& route : Routes()) {
    SCOPED_TRACE(route.path);
    EXPECT_FALSE(route.summary.empty());
    EXPECT_TRUE(!route.form.reply.empty() || route.form.statuses[0] == 501);
    EXPECT_FALSE(route.form.media_type.empty());
    EXPECT_TRUE(route.method != "GET" || route.form.request.empty());
    if (route.form.query.empty()) continue;
    const Json query = ApiSchemas().at(std::string(route.form.query));
    EXPECT_FALSE(query.at("properties").empty());
  }
}

TEST(ApiDocument, EverySchemaIsUsedAndNoneIsMissing) {
  std::set<std::string> used;
  const Json document = ApiDocument(Routes(), /*needs_key=*/true);
  AddReferences(document, used);
  for (const Route& route : Routes()) {
    if (!route.form.query.empty()) used.insert(std::string(route.form.query));
  }
  EXPECT_EQ(used, SchemaNames());
}

TEST(ApiDocument, EveryRouteIsAnOperationWithANameOfItsOwn) {
  const Json document = ApiDocument(Routes(), /*needs_key=*/false);
  std::set<std::string> ids;
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const Json& operation : operations) ids.insert(operation["operationId"]);
  }
  EXPECT_EQ(ids.size(), Routes().size());
  EXPECT_TRUE(ids.contains("post_v1_chat_completions"));
}

TEST(ApiDocument, WhoNeedsAKeyIsToldSo) {
  const auto chat = [](bool needs_key) {
    return ApiDocument(Routes(), needs_key)["paths"]["/v1/chat/completions"]["post"];
  };
  EXPECT_TRUE(chat(true).contains("security"));
  EXPECT_TRUE(chat(true)["responses"].contains("401"));
  EXPECT_FALSE(chat(false).contains("security"));
  EXPECT_FALSE(chat(false)["responses"].contains("401"));
  const Json document = ApiDocument(Routes(), true);
  EXPECT_FALSE(document["paths"]["/health"]["get"].contains("security"));
}

TEST(ApiDocument, ParametersStandInPathsAndQueries) {
  const Route routes[] = {{.method = "GET",
                           .path = "/v1/a/{id}/b/{part}",
                           .summary = "…",
                           .handle = HandleHealth,
                           .form = {.query = "StreamOptions", .reply = "Health"}}};
  const Json operation = ApiDocument(routes, false)["paths"]["/v1/a/{id}/b/{part}"]["get"];
  EXPECT_EQ(operation["operationId"], "get_v1_a_id_b_part");
  const Json& parameters = operation["parameters"];
  ASSERT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters[0]["name"], "id");
  EXPECT_EQ(parameters[1]["in"], "path");
  EXPECT_EQ(parameters[2]["name"], "include_usage");
  EXPECT_EQ(parameters[2]["required"], false);
}

// What reads the bodies of a schema, where that needs no server.
using Parser = std::function<std::variant<ApiRequest, ApiError>(const Json&, const ModelInfo&)>;
std::map<std::string, Parser> Parsers() {
  const auto openai = [](Endpoint endpoint) {
    return [endpoint](const Json& body, const ModelInfo& model) {
      return ParseRequest(endpoint, body, model);
    };
  };
  const auto messages = [](bool needs_max_tokens) {
    return [needs_max_tokens](const Json& body, const ModelInfo& model) {
      return ParseMessagesRequest(body, model, needs_max_tokens);
    };
  };
  return {{"ChatRequest", openai(Endpoint::kChatCompletions)},
          {"CompletionRequest", openai(Endpoint::kCompletions)},
          {"LlamaRequest", ParseLlamaRequest},
          {"MessagesRequest", messages(true)},
          {"MessagesCountRequest", messages(false)},
          {"ResponsesRequest", ParseResponsesRequest}};
}

// tests/e2e/openapi_test.py sends those of all schemas to a server.
TEST(ApiDocument, ExamplesAreAcceptedByTheParser) {
  const LetterText text;
  const ModelInfo model = {.text = &text, .context = 4096, .fingerprint = "0123"};
  const Json schemas = ApiSchemas();
  for (const auto& [name, parse] : Parsers()) {
    const Json examples = schemas.at(name).value("examples", Json::array());
    EXPECT_FALSE(examples.empty()) << name;
    for (const Json& example : examples) {
      const auto parsed = parse(example, model);
      const auto* error = std::get_if<ApiError>(&parsed);
      EXPECT_EQ(error, nullptr) << name << ": " << error->message;
    }
  }
}

TEST(ApiDocument, EveryRequestHasAnExample) {
  const Json schemas = ApiSchemas();
  for (const Route& route : Routes()) {
    if (route.form.request.empty()) continue;
    EXPECT_TRUE(schemas.at(std::string(route.form.request)).contains("examples")) << route.path;
  }
}

}  // namespace
}  // namespace kvern::server
