#include "engine/request_check.h"

#include <fmt/core.h>

#include "text/utf8.h"

namespace kvern::engine {
namespace {

Status CheckCount(const char* field, size_t count, size_t low, size_t high) {
  if (count >= low && count <= high) return {};
  return Errorf(ErrorCode::kInvalidArgument, "{}: {} is outside {} … {}", field, count, low, high);
}

bool IsUtf8(const std::string& text) {
  text::Utf8Stream stream;
  const std::string valid = stream.Push(text);
  return valid == text && stream.Flush().empty();
}

}  // namespace

Status CheckRequest(const Request& request) {
  KVERN_RETURN_IF_ERROR(CheckCount("n", request.n, 1, kMaxCompletions));
  if (request.tokens.size() > kMaxPromptTokens) {
    return Errorf(ErrorCode::kInvalidArgument, "tokens: a prompt of {} is over {}",
                  request.tokens.size(), kMaxPromptTokens);
  }
  if (request.stop.size() > kMaxStops || request.stop_tokens.size() > kMaxStops) {
    return Errorf(ErrorCode::kInvalidArgument, "{}: more than {}",
                  request.stop.size() > kMaxStops ? "stop" : "stop_tokens", kMaxStops);
  }
  if (request.deadline_us && (*request.deadline_us < 0 || *request.deadline_us > kMaxTimeUs)) {
    return Errorf(ErrorCode::kInvalidArgument, "deadline_us: {} is outside 0 … {}",
                  *request.deadline_us, kMaxTimeUs);
  }
  if (request.cache.spans.size() > kMaxSpans) {
    return Errorf(ErrorCode::kInvalidArgument, "cache.spans: more than {}", kMaxSpans);
  }
  for (const CacheSpan& span : request.cache.spans) {
    if (span.ttl_us > 0 && span.ttl_us <= kMaxTimeUs) continue;
    return Errorf(ErrorCode::kInvalidArgument, "cache.spans: ttl_us: {} is outside 1 … {}",
                  span.ttl_us, kMaxTimeUs);
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string& stop = request.stop[i];
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Errorf(ErrorCode::kInvalidArgument, "stop[{}]: {} bytes, outside 1 … {}", i,
                    stop.size(), kMaxStopBytes);
    }
    if (!IsUtf8(stop)) return Errorf(ErrorCode::kInvalidArgument, "stop[{}]: is not UTF-8", i);
  }
  return {};
}

std::string AccountOfTenant(const std::string& tenant) {
  return tenant.empty() ? "" : "tenant " + tenant;
}

std::string AccountOf(const Request& request) {
  const bool is_group = request.cache_group && !request.cache_group->empty() && !request.cache_salt;
  return is_group ? "group " + *request.cache_group : AccountOfTenant(request.tenant);
}

std::string SharingGroupOf(const Request& request) {
  if (request.cache_salt) {
    return fmt::format("salt {} {} {}", request.tenant.size(), request.tenant, *request.cache_salt);
  }
  const std::string& name = request.cache_group.value_or(request.tenant);
  if (name.empty()) return "";
  return (request.cache_group ? "group " : "tenant ") + name;
}

}  // namespace kvern::engine
