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

#include "engine/model_check/simulation.h"
#include "kv/model_check/child.h"

namespace kvern::engine::model_check {

inline constexpr size_t kOperationsPerCase = 400;

// In this process: returns the hash of its decisions, or aborts with a finding.
uint64_t RunCase(const EngineSetup& setup, std::span<const Operation> operations,
                 const SimulationOptions& options);

// What the case printed when it failed, if it did.
std::optional<std::string> FindingOf(const EngineSetup& setup,
                                     std::span<const Operation> operations,
                                     const SimulationOptions& options);

// A short list, taken from `operations`, that fails with the same finding but for its numbers.
// Stops early when `seconds` have passed. REQUIRES: it fails with `finding`.
std::vector<Operation> Shrink(const EngineSetup& setup, std::vector<Operation> operations,
                              const SimulationOptions& options, const std::string& finding,
                              double seconds);

using kv::model_check::HuntLimits;  // in steps of the engine

struct HuntResult {
  uint64_t num_cases = 0;
  SimulationCounts counts;
  double seconds = 0;
  std::optional<kv::model_check::FailedCase<Operation>> failure;
};

// Runs the cases of seeds first_seed, first_seed + 1, … Every eighth is run twice, and must make
// the same decisions.
HuntResult Hunt(const EngineSetup& setup, uint64_t first_seed, const HuntLimits& limits,
                const SimulationOptions& options);

}  // namespace kvern::engine::model_check
