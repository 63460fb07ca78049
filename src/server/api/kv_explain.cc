// What a prompt would find in the cache now, and why not more. Nothing of another tenant is told.
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/api/field_reader.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

Json MissBody(const ModelText& text, const kv::Miss& miss, bool is_shared) {
  // That others have this text is nobody's business.
  const bool is_hidden = miss.reason == kv::MissReason::kOtherNamespace;
  Json body = {{"reason", ToString(is_hidden ? kv::MissReason::kUnknown : miss.reason)},
               {"position", miss.position},
               {"tokens", miss.num_tokens}};
  if (is_hidden) return body;
  if (miss.differs_at) body["differs_at"] = *miss.differs_at;
  const auto add_token = [&](const char* name, const std::optional<TokenId>& id) {
    if (!id) return;
    body[name] = {{"id", static_cast<uint32_t>(*id)}, {"text", text.TokenBytes(*id)}};
  };
  add_token("wanted", miss.wanted);
  // In a group the other text may be that of somebody else.
  if (!is_shared) add_token("cached", miss.cached);
  if (!miss.cause.empty()) body["cause"] = miss.cause;
  return body;
}

}  // namespace

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
  const kv::PromptSplit& split = explained->split;
  call.Reply({{"prompt_tokens", request.tokens.size()},
              {"found",
               {{"ram", split.ram},
                {"tier", split.tier},
                {"in_flight", split.in_flight},
                {"partial", split.partial}}},
              {"misses", std::move(misses)}});
}

}  // namespace kvern::server
