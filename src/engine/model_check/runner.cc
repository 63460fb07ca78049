#include "engine/model_check/runner.h"

#include <chrono>
#include <utility>

namespace kvern::engine::model_check {
namespace {

using kv::model_check::SecondsSince;
using kv::model_check::SharedWithChild;

// What a child has got to.
struct Progress {
  uint64_t seed = 0;
  uint64_t num_cases = 0;
  uint64_t num_operations = 0;  // begun, of the case
  SimulationCounts counts;      // of all cases
};

uint64_t RunCaseWith(const EngineSetup& setup, std::span<const Operation> operations,
                     const SimulationOptions& options, Progress& progress) {
  Simulation simulation(setup, options);
  progress.num_operations = 0;
  for (const Operation& operation : operations) {
    ++progress.num_operations;
    simulation.Do(operation);
  }
  simulation.Finish();
  progress.counts.Add(simulation.counts());
  ++progress.num_cases;
  return simulation.trace();
}

void RunSeed(const EngineSetup& setup, uint64_t seed, const SimulationOptions& options,
             Progress& progress) {
  constexpr uint64_t kRunsTwice = 8;
  progress.seed = seed;
  const auto operations = MakeOperations(setup, seed, kOperationsPerCase);
  const auto run = [&] {
    kv::model_check::AllowCpu(kv::model_check::kMaxCaseSeconds);
    return RunCaseWith(setup, operations, options, progress);
  };
  const uint64_t trace = run();
  if (seed % kRunsTwice != 0) return;
  kv::model_check::Require(run() == trace, "the same case made other decisions");
}

}  // namespace

uint64_t RunCase(const EngineSetup& setup, std::span<const Operation> operations,
                 const SimulationOptions& options) {
  Progress progress;
  return RunCaseWith(setup, operations, options, progress);
}

std::optional<std::string> FindingOf(const EngineSetup& setup,
                                     std::span<const Operation> operations,
                                     const SimulationOptions& options) {
  return kv::model_check::FindingOfChild([&] {
    const uint64_t trace = RunCase(setup, operations, options);
    kv::model_check::Require(RunCase(setup, operations, options) == trace,
                             "the same case made other decisions");
  });
}

std::vector<Operation> Shrink(const EngineSetup& setup, std::vector<Operation> operations,
                              const SimulationOptions& options, const std::string& finding,
                              double seconds) {
  return kv::model_check::ShrinkAlike<Operation>(
      std::move(operations), finding, seconds,
      [&](auto some) { return FindingOf(setup, some, options); });
}

HuntResult Hunt(const EngineSetup& setup, uint64_t first_seed, const HuntLimits& limits,
                const SimulationOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SharedWithChild<Progress> progress;
  const auto finding = kv::model_check::FindingOfChild([&] {
    for (uint64_t seed = first_seed;
         SecondsSince(start) < limits.seconds && progress->counts.steps < limits.num_steps;
         ++seed) {
      RunSeed(setup, seed, options, *progress);
    }
  });
  HuntResult result;
  result.num_cases = progress->num_cases;
  result.counts = progress->counts;
  if (finding) {
    auto operations = MakeOperations(setup, progress->seed, kOperationsPerCase);
    operations.resize(progress->num_operations);
    result.failure =
        kv::model_check::FailedCase<Operation>{progress->seed, *finding, std::move(operations)};
  }
  result.seconds = SecondsSince(start);
  return result;
}

}  // namespace kvern::engine::model_check
