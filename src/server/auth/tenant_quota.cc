#include "server/auth/tenant_quota.h"

#include <charconv>
#include <utility>

namespace kvern::server {
namespace {

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc() || end != text.end()) return std::nullopt;
  return number;
}

}  // namespace

size_t KvAmount::TokensOf(size_t capacity_tokens) const {
  return percent > 0 ? static_cast<size_t>(static_cast<double>(capacity_tokens) * percent / 100)
                     : tokens;
}

std::optional<KvAmount> ParseKvAmount(std::string_view text) {
  if (text.ends_with('%')) {
    const auto percent = ParseNumber<double>(text.substr(0, text.size() - 1));
    if (!percent || !(*percent > 0 && *percent <= 100)) return std::nullopt;
    return KvAmount{.percent = *percent};
  }
  const auto tokens = ParseNumber<size_t>(text);
  if (!tokens || *tokens == 0) return std::nullopt;
  return KvAmount{.tokens = *tokens};
}

Result<std::vector<TenantTokens>> ResolveQuotas(std::span<const TenantQuota> quotas,
                                                size_t capacity_tokens) {
  std::vector<TenantTokens> resolved;
  size_t left = capacity_tokens;
  for (const TenantQuota& quota : quotas) {
    TenantTokens tokens{.tenant = quota.tenant};
    if (quota.share) tokens.share = quota.share->TokensOf(capacity_tokens);
    if (quota.floor) tokens.floor = quota.floor->TokensOf(capacity_tokens);
    if (tokens.share && tokens.floor > *tokens.share) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "line {}: kv_floor, {} tokens, is more than the {} of kv_share", quota.line,
                    tokens.floor, *tokens.share);
    }
    if (tokens.floor > left) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "line {}: kv_floor, {} tokens, is more than the {} of {} in the KV cache that "
                    "the floors above leave",
                    quota.line, tokens.floor, left, capacity_tokens);
    }
    left -= tokens.floor;
    resolved.push_back(std::move(tokens));
  }
  return resolved;
}

}  // namespace kvern::server
