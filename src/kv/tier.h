// The tiers that Kvern has, by name: where records may lie below RAM (kvern/kv_tier.h).
//
// To add one, write tier/<name>.cc, declare its factory here and add its row in tier/table.cc: the
// conformance test runs over every row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kvern/kv_tier.h"

namespace kvern::kv {

struct TierOptions {
  uint64_t capacity_bytes = 0;  // of records that it may hold; it forgets the least useful ones
};

struct TierRow {
  std::string_view name;
  std::string_view help;  // one line
  // Errors: kInvalidArgument, kIo, kOutOfMemory.
  Result<std::unique_ptr<Tier>> (*make)(const TierOptions& options);
};

std::span<const TierRow> Tiers();

// Errors: kInvalidArgument, naming the tiers that exist.
Result<const TierRow*> FindTier(std::string_view name);

// The factories, one a file.
Result<std::unique_ptr<Tier>> MakeMemoryTier(const TierOptions& options);

}  // namespace kvern::kv
