#include "server/api/cache_marks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMaxMarks = 4;  // as both protocols have it; the last count
constexpr int64_t kMinuteUs = 60'000'000;
constexpr const char* kTtlRule = "must be 5m, 30m, 1h, 12h or 24h";  // what ParseTtl() takes

// How many tokens the prompt shares with the conversation up to the mark.
size_t TokensUpTo(const ModelText& text, const Conversation& conversation,
                  const std::vector<TokenId>& tokens, const CacheMark& mark) {
  // In what the assistant is to go on with: it is no message of the template's.
  if (mark.message >= conversation.messages.size()) return tokens.size();
  Json messages = Json::array();
  for (size_t i = 0; i <= mark.message; ++i) messages.push_back(conversation.messages[i]);
  if (mark.content_bytes != SIZE_MAX) {
    Json& content = messages.back()["content"];
    content = content.get_ref<const std::string&>().substr(0, mark.content_bytes);
  }
  const auto marked = text.EncodeChat({.messages = messages,
                                       .variables = conversation.variables,
                                       .tools = conversation.tools,
                                       .add_generation_prompt = false});
  if (!marked.ok()) return 0;  // a template that takes no such conversation
  const auto differs =
      std::mismatch(tokens.begin(), tokens.end(), marked->begin(), marked->end()).first;
  return static_cast<size_t>(differs - tokens.begin());
}

}  // namespace

std::optional<int64_t> ParseTtl(const std::string& ttl) {
  for (const auto& [name, minutes] :
       {std::pair("5m", 5), {"30m", 30}, {"1h", 60}, {"12h", 720}, {"24h", 1440}}) {
    if (ttl == name) return minutes * kMinuteUs;
  }
  return std::nullopt;
}

std::optional<ApiError> ReadBreakpoint(const std::string& path, const Json& mark,
                                       std::optional<int64_t>& ttl_us) {
  if (!mark.is_object()) return BadField(path, "must be an object with a mode");
  FieldReader fields(mark);
  const auto mode = fields.String("mode");
  if (!mode || *mode != "explicit") return BadField(path + ".mode", "must be \"explicit\"");
  if (const auto ttl = fields.String("ttl")) ttl_us = ParseTtl(*ttl);
  if (!fields.ok() || (fields.Find("ttl") != nullptr && !ttl_us)) {
    return BadField(path + ".ttl", kTtlRule);
  }
  return std::nullopt;
}

CacheOptions ReadCacheOptions(FieldReader& fields) {
  CacheOptions result;
  fields.String("prompt_cache_key");  // of who routes to several machines
  const auto retention = fields.String("prompt_cache_retention");
  if (retention && *retention != "in_memory" && *retention != "in-memory" && *retention != "24h") {
    fields.Fail(BadField("prompt_cache_retention", "must be in_memory or 24h"));
  }
  const Json* const options = fields.Object("prompt_cache_options");
  if (options == nullptr) return result;
  FieldReader option(*options);
  const auto mode = option.String("mode");
  if (!option.ok() || (mode && *mode != "implicit" && *mode != "explicit")) {
    fields.Fail(BadField("prompt_cache_options.mode", "must be implicit or explicit"));
  }
  const auto ttl = option.String("ttl");
  const auto ttl_us = ttl ? ParseTtl(*ttl) : std::nullopt;
  if (!option.ok() || (ttl && !ttl_us)) {
    fields.Fail(BadField("prompt_cache_options.ttl", kTtlRule));
  }
  if (!ttl_us) return result;
  result.ttl_us = *ttl_us;
  result.keeps_all = !mode || *mode == "implicit";
  return result;
}

std::vector<CacheSpan> SpansOf(const ModelText& text, const Conversation& conversation,
                               const std::vector<TokenId>& tokens,
                               const std::vector<CacheMark>& marks, const CacheOptions& options) {
  std::vector<CacheSpan> spans;
  for (size_t i = marks.size() - std::min(marks.size(), kMaxMarks); i < marks.size(); ++i) {
    const size_t num_tokens = TokensUpTo(text, conversation, tokens, marks[i]);
    if (num_tokens == 0) continue;
    spans.push_back({.num_tokens = num_tokens, .ttl_us = marks[i].ttl_us.value_or(options.ttl_us)});
  }
  if (options.keeps_all) spans.push_back({.num_tokens = tokens.size(), .ttl_us = options.ttl_us});
  return spans;
}

size_t CreatedTokens(const Report& report) {
  size_t kept = 0;
  for (const kv::SpanGrant& span : report.spans) kept = std::max(kept, span.num_tokens);
  return kept - std::min(kept, report.prompt.hit());
}

}  // namespace kvern::server
