#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/tier.h"

namespace kvern::kv {
namespace {

constexpr TierRow kTiers[] = {
    {.name = "memory",
     .help = "RAM beside the pool, gone when the process ends: for tests and experiments",
     .make = MakeMemoryTier},
};

}  // namespace

std::span<const TierRow> Tiers() { return kTiers; }

Result<const TierRow*> FindTier(std::string_view name) {
  std::string names;
  for (const TierRow& tier : kTiers) {
    if (tier.name == name) return &tier;
    names += (names.empty() ? "" : ", ") + std::string(tier.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "unknown tier '{}': use one of {}", name, names);
}

}  // namespace kvern::kv
