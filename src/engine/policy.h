// SchedulingPolicy: who of those that wait goes first.
//
// To add one, write policy/<name>.cc, declare its row here and list it in policy/table.cc: the
// conformance test runs over every row. Whatever the policy, waiting for
// SchedulerOptions::ageing_us longer than somebody goes before them, and among equals the tenant
// that was served least goes first, so nobody starves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace kvern::engine {

// A sequence that waits, as a policy sees it.
struct Candidate {
  uint64_t arrival = 0;  // order of arrival, unique
  size_t num_found = 0;  // of its tokens in the cache; 0 unless the policy looks
};

struct SchedulingPolicy {
  std::string_view name;
  std::string_view help;
  bool by_priority = false;  // Request::priority counts: for admission and for who is preempted
  bool looks = false;        // wants num_found
  // Whether `a` goes before `b`. A strict order.
  bool (*before)(const Candidate& a, const Candidate& b);
};

extern const SchedulingPolicy kFcfs;
extern const SchedulingPolicy kPriority;
extern const SchedulingPolicy kLongestPrefix;

std::span<const SchedulingPolicy* const> SchedulingPolicies();
// Errors: kInvalidArgument, naming those that exist.
Result<const SchedulingPolicy*> FindSchedulingPolicy(std::string_view name);

}  // namespace kvern::engine
