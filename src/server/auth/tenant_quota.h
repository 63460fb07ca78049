// TenantQuota: how much of the KV memory a tenant may have and is left, as a key file says it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::server {

// "25%" of the KV cache, or "4096" tokens of it.
struct KvAmount {
  double percent = 0;  // 0: it is tokens
  size_t tokens = 0;

  size_t TokensOf(size_t capacity_tokens) const;
};
// None: it is neither. Both are more than nothing, and at most all.
std::optional<KvAmount> ParseKvAmount(std::string_view text);

struct TenantQuota {
  std::string tenant;
  size_t line = 0;  // of the file
  std::optional<KvAmount> share = {};
  std::optional<KvAmount> floor = {};
};

// The same in tokens of a cache that has room for so many. No share: all of it.
struct TenantTokens {
  std::string tenant;
  std::optional<size_t> share = {};
  size_t floor = 0;
};

// Errors: kInvalidArgument with the line, where a floor is more than the share or what the floors
// before it leave.
Result<std::vector<TenantTokens>> ResolveQuotas(std::span<const TenantQuota> quotas,
                                                size_t capacity_tokens);

}  // namespace kvern::server
