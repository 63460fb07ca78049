#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/policy.h"

namespace kvern::kv {
namespace {

constexpr PolicyRow kPolicies[] = {
    {.name = "lru", .help = "the least recently used (default)", .make = MakeLruPolicy},
    {.name = "lfu", .help = "the least often used, old fame wearing off", .make = MakeLfuPolicy},
    {.name = "s3fifo",
     .help = "what was not used again soon after it came; a scan displaces nothing else",
     .make = MakeS3FifoPolicy},
    {.name = "cost",
     .help = "the least time to compute again, by the odds of reuse, per byte",
     .make = MakeCostPolicy},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

Result<const PolicyRow*> FindPolicy(std::string_view name) {
  std::string names;
  for (const PolicyRow& policy : kPolicies) {
    if (policy.name == name) return &policy;
    names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "unknown eviction policy '{}': use one of {}", name,
                names);
}

}  // namespace kvern::kv
