#include <string>

#include "engine/policy.h"

namespace kvern::engine {
namespace {

constexpr const SchedulingPolicy* kPolicies[] = {&kFcfs, &kPriority, &kLongestPrefix};

}  // namespace

std::span<const SchedulingPolicy* const> SchedulingPolicies() { return kPolicies; }

Result<const SchedulingPolicy*> FindSchedulingPolicy(std::string_view name) {
  std::string names;
  for (const SchedulingPolicy* policy : kPolicies) {
    if (policy->name == name) return policy;
    names += (names.empty() ? "" : ", ") + std::string(policy->name);
  }
  return Errorf(ErrorCode::kInvalidArgument,
                "SchedulerOptions::policy: unknown '{}': use one of {}", name, names);
}

}  // namespace kvern::engine
