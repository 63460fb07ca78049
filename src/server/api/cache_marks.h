// Explicit prompt caching: where clients mark that the beginning of a prompt is to be kept, and for
// how long. OpenAI's prompt_cache_breakpoint and prompt_cache_options; Anthropic's cache_control is
// rewritten as those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kvern/engine.h"
#include "server/api/api_error.h"
#include "server/api/field_reader.h"
#include "server/api/model_text.h"

namespace kvern::server {

// The name of the field in messages and their parts.
inline constexpr const char* kCacheBreakpoint = "prompt_cache_breakpoint";

// Everything up to `content_bytes` of the content of messages[message]; SIZE_MAX: all of it.
struct CacheMark {
  size_t message = 0;
  size_t content_bytes = SIZE_MAX;
  std::optional<int64_t> ttl_us = {};  // none: what the request says for all
};

// "5m", "30m", "1h", "12h" or "24h".
std::optional<int64_t> ParseTtl(const std::string& ttl);

// {"mode": "explicit", "ttl": …} at `path`. Errors: what is wrong with it.
std::optional<ApiError> ReadBreakpoint(const std::string& path, const nlohmann::ordered_json& mark,
                                       std::optional<int64_t>& ttl_us);

// prompt_cache_options, prompt_cache_key and prompt_cache_retention.
struct CacheOptions {
  int64_t ttl_us = 30 * int64_t{60'000'000};  // of marks without one
  bool keeps_all = false;                     // the whole prompt is marked
};
CacheOptions ReadCacheOptions(FieldReader& fields);

// The spans of `tokens`, which are the conversation's, that the marks mean: ascending, the last
// few.
std::vector<CacheSpan> SpansOf(const ModelText& text, const Conversation& conversation,
                               const std::vector<TokenId>& tokens,
                               const std::vector<CacheMark>& marks, const CacheOptions& options);

// Prompt tokens that a request's spans keep now and that were not in the cache before.
size_t CreatedTokens(const Report& report);

}  // namespace kvern::server
