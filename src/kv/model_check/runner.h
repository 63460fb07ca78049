// Runs cases in child processes, because a finding aborts, and shrinks those that fail.
//
// One thread: the process forks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv/model_check/checker.h"
#include "kv/model_check/child.h"

namespace kvern::kv::model_check {

inline constexpr size_t kStepsPerCase = 500;

// In this process: returns, or aborts with a finding.
void RunCase(const CacheSetup& setup, std::span<const Operation> operations,
             const CheckerOptions& options);

// What the case printed when it failed, if it did.
std::optional<std::string> FindingOf(const CacheSetup& setup, std::span<const Operation> operations,
                                     const CheckerOptions& options);

// A short list, taken from `operations`, that fails with the same finding but for its numbers.
// Stops early when `seconds` have passed. REQUIRES: it fails with `finding`.
std::vector<Operation> Shrink(const CacheSetup& setup, std::vector<Operation> operations,
                              const CheckerOptions& options, const std::string& finding,
                              double seconds);

struct HuntResult {
  uint64_t num_cases = 0;
  uint64_t num_steps = 0;
  double seconds = 0;
  std::optional<FailedCase<Operation>> failure;
};

// Runs the cases of seeds first_seed, first_seed + 1, …
HuntResult Hunt(const CacheSetup& setup, uint64_t first_seed, const HuntLimits& limits,
                const CheckerOptions& options);

}  // namespace kvern::kv::model_check
