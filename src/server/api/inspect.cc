#include "server/api/inspect.h"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/service.h"
#include "server/api/openai_parts.h"
#include "text/utf8.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

Json MissBody(const ModelText& text, const kv::Miss& miss, bool is_shared) {
  Json body = {{"reason", ToString(ToldReason(miss.reason))},
               {"position", miss.position},
               {"tokens", miss.num_tokens}};
  if (miss.reason != ToldReason(miss.reason)) return body;
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

Json FoundBody(const kv::PromptSplit& prompts) {
  return {{"ram", prompts.ram},
          {"tier", prompts.tier},
          {"in_flight", prompts.in_flight},
          {"partial", prompts.partial}};
}

Json PromptsBody(const kv::PromptSplit& prompts) {
  Json body = FoundBody(prompts);
  body["misses"] = MissedByReason(prompts);
  return body;
}

Json StatesBody(const kv::StateCounts& bytes) {
  return {{"active", bytes.active},
          {"cached", bytes.cached},
          {"reserved", bytes.reserved},
          {"free", bytes.free}};
}

Request OwnerOf(const Call& call) {
  Request owner;
  owner.tenant = call.caller.tenant;
  const auto& group = call.server.options.share_group;
  if (group) owner.cache_group = CacheGroupOf(*group);
  return owner;
}

std::optional<size_t> QueryCount(const Call& call, const char* name, size_t usual, size_t most) {
  const auto asked = call.Query(name);
  if (!asked) return usual;
  size_t count = 0;
  const auto [end, error] = std::from_chars(asked->data(), asked->data() + asked->size(), count);
  if (error == std::errc() && end == asked->data() + asked->size() && count > 0 && count <= most) {
    return count;
  }
  call.Fail(BadField(name, fmt::format("must be from 1 to {}", most)));
  return std::nullopt;
}

std::string ExcerptOf(const Serving& serving, std::span<const TokenId> tokens, size_t max_bytes) {
  std::string bytes;
  for (const TokenId token : tokens) {
    bytes += serving.text->TokenBytes(token);
    if (bytes.size() >= max_bytes) break;
  }
  bytes.resize(std::min(bytes.size(), max_bytes));
  text::Utf8Stream stream;
  return stream.Push(bytes);  // an unfinished character at the end is left out
}

}  // namespace kvern::server
