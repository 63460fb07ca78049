// What a prompt would find in the cache now, and why not more. Nothing of another tenant is told.
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/api/field_reader.h"
#include "server/api/inspect.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

void HandleKvExplain(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  const Serving& serving = call.serving();
  const auto endpoint =
      body->contains("messages") ? Endpoint::kChatCompletions : Endpoint::kCompletions;
  auto parsed = ParseRequest(endpoint, *body, serving.info);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.Fail(*error);
  FieldReader fields(*body);
  Request& request = std::get<ApiRequest>(parsed).request;
  SetOwner(call, fields, request);
  if (!fields.ok()) return call.Fail(*fields.error());
  const auto explained = serving.engine->Explain(request);
  if (!explained.ok()) return call.Fail(ToApiError(explained.error()));
  const bool is_shared =
      call.server.options.share_group.has_value() && fields.Find("cache_salt") == nullptr;
  Json misses = Json::array();
  for (const kv::Miss& miss : explained->misses) {
    misses.push_back(MissBody(*serving.text, miss, is_shared));
  }
  call.Reply({{"prompt_tokens", request.tokens.size()},
              {"found", FoundBody(explained->split)},
              {"misses", std::move(misses)}});
}

}  // namespace kvern::server
