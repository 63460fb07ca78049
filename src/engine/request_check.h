// What a request may say, whatever the model: the same bounds for those that arrive and for those
// that a receipt holds, so that every answer's receipt can be read.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "kvern/engine.h"

namespace kvern::engine {

inline constexpr size_t kMaxPromptTokens = size_t{1} << 22;
inline constexpr size_t kMaxCompletions = 1024;
inline constexpr size_t kMaxSpans = 64;
inline constexpr size_t kMaxStops = 1024;  // texts; and tokens
inline constexpr size_t kMaxStopBytes = 4096;
inline constexpr int64_t kMaxTimeUs = 1'000'000'000'000'000;  // decades: sums do not overflow

// Errors: kInvalidArgument, naming the field.
Status CheckRequest(const Request& request);

// Whose quota its blocks count for: its tenant's, unless a group has them.
std::string AccountOf(const Request& request);
// The account of a tenant's own requests.
std::string AccountOfTenant(const std::string& tenant);

// Requests of which this is the same share cached text. No group is named like a tenant is, so
// nobody gets at a tenant's text by naming it. An empty name: everybody without tenant.
std::string SharingGroupOf(const Request& request);

}  // namespace kvern::engine
