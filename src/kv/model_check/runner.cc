#include "kv/model_check/runner.h"

#include <chrono>
#include <utility>

namespace kvern::kv::model_check {
namespace {

using Clock = std::chrono::steady_clock;

// What a child has got to.
struct Progress {
  uint64_t seed = 0;
  uint64_t num_cases = 0;
  uint64_t num_steps = 0;          // of all cases
  uint64_t num_steps_of_case = 0;  // begun
};

void RunCaseWith(const CacheSetup& setup, std::span<const Operation> operations,
                 const CheckerOptions& options, Progress& progress) {
  Checker checker(setup, options);
  progress.num_steps_of_case = 0;
  for (const Operation& operation : operations) {
    ++progress.num_steps_of_case;
    checker.Do(operation);
  }
  checker.Finish();
  progress.num_steps += operations.size();
  ++progress.num_cases;
}

}  // namespace

void RunCase(const CacheSetup& setup, std::span<const Operation> operations,
             const CheckerOptions& options) {
  Progress progress;
  RunCaseWith(setup, operations, options, progress);
}

std::optional<std::string> FindingOf(const CacheSetup& setup, std::span<const Operation> operations,
                                     const CheckerOptions& options) {
  return FindingOfChild([&] { RunCase(setup, operations, options); });
}

std::vector<Operation> Shrink(const CacheSetup& setup, std::vector<Operation> operations,
                              const CheckerOptions& options, const std::string& finding,
                              double seconds) {
  return ShrinkAlike<Operation>(std::move(operations), finding, seconds,
                                [&](auto some) { return FindingOf(setup, some, options); });
}

HuntResult Hunt(const CacheSetup& setup, uint64_t first_seed, const HuntLimits& limits,
                const CheckerOptions& options) {
  const auto start = Clock::now();
  SharedWithChild<Progress> progress;
  const auto finding = FindingOfChild([&] {
    for (uint64_t seed = first_seed;
         SecondsSince(start) < limits.seconds && progress->num_steps < limits.num_steps; ++seed) {
      progress->seed = seed;
      AllowCpu(kMaxCaseSeconds);
      RunCaseWith(setup, MakeOperations(setup, seed, kStepsPerCase), options, *progress);
    }
  });
  HuntResult result;
  result.num_cases = progress->num_cases;
  result.num_steps = progress->num_steps;
  if (finding) {
    auto operations = MakeOperations(setup, progress->seed, kStepsPerCase);
    operations.resize(progress->num_steps_of_case);
    result.failure = FailedCase<Operation>{progress->seed, *finding, std::move(operations)};
  }
  result.seconds = SecondsSince(start);
  return result;
}

}  // namespace kvern::kv::model_check
