// KvCases: what `kvern bench kv` times, each under every type of K and V.
//
// In each round the types take turns, so that what disturbs the machine for a while disturbs all
// alike; a ratio is the median of those within the rounds. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench_kv_model.h"

namespace kvern::cli {

enum class KvUnit { kTokensPerSecond, kMilliseconds, kNanoseconds };

struct KvCase {
  std::string key;     // for programs: "decode"
  std::string title;   // for people: "decode at depth 2048"
  uint32_t depth = 0;  // tokens whose K and V there are before
  KvUnit unit = KvUnit::kMilliseconds;
  double work = 1;  // of a run: tokens, runs or rows
  // Runs once under a type, by its index. Gives the seconds of what counts.
  std::function<Result<double>(size_t type)> run = {};
};

struct KvTiming {
  std::vector<double> seconds;  // of a run, by round
  double value;                 // the median, in the case's unit
  double speed;                 // of the first type's; 2 is twice as fast
};

// By type. One round more comes first, unmeasured. Errors: those of the runs.
Result<std::vector<KvTiming>> TimeCase(const KvCase& kv_case, size_t num_types, uint32_t rounds);

struct KvCaseOptions {
  std::vector<uint32_t> depths;
  uint32_t num_prompt = 0;     // tokens of a prefill
  uint32_t num_new = 0;        // tokens of a decode
  uint32_t num_sequences = 0;  // of a batch
  uint32_t prefix = 0;         // tokens before each sequence of a batch; whole chunks
};

// The parts, one file each. `model` and `rigs` must outlive the cases.
// Errors: kOutOfMemory.
Result<std::vector<KvCase>> AttentionCases(KvBenchModel& model, const std::vector<KvRig>& rigs,
                                           const KvCaseOptions& options);
Result<std::vector<KvCase>> StoreCases(KvBenchModel& model, const std::vector<KvRig>& rigs);
std::vector<KvCase> StepCases(std::vector<KvRig>& rigs, const KvCaseOptions& options);

// Blocks that the largest of StepCases() takes.
size_t MostStepBlocks(const KvCaseOptions& options);

// REQUIRES: at least one value.
double MedianOf(std::vector<double> values);

}  // namespace kvern::cli
