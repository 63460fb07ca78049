// engine_model_check: random requests to an engine on a fake model, clock and executor.
//
//   engine_model_check [--seconds N] [--steps N] [--seed N] [--config NAME] [--check-every N]
//   engine_model_check --replay FILE      a case as it prints them, with what each step did
//   engine_model_check --list             the configurations
//
// Every configuration gets an equal part of the time and of the steps. A case that fails is shrunk
// and printed in the form that --replay reads. Exit status 1: something was found; 2: wrong usage.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "engine/model_check/runner.h"

namespace kvern::engine::model_check {
namespace {

constexpr double kShrinkSeconds = 60;

struct Flags {
  double seconds = 10;
  uint64_t num_steps = UINT64_MAX;
  uint64_t seed = 1;
  uint64_t check_every = 16;
  std::string setup;   // empty: all
  std::string replay;  // a file; empty: none
  bool is_list = false;
};

int Usage(const std::string& what) {
  fmt::print(stderr,
             "engine_model_check: {}: use --seconds N, --steps N, --seed N, --config NAME, "
             "--check-every N, --replay FILE or --list\n",
             what);
  return 2;
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The flag that is wrong, or none.
std::optional<std::string> ParseFlags(std::span<char* const> arguments, Flags& flags) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--list") {
      flags.is_list = true;
      continue;
    }
    if (i + 1 == arguments.size()) return fmt::format("{} is unknown or lacks its value", name);
    const std::string_view value = arguments[++i];
    if (name == "--config") {
      flags.setup = value;
    } else if (name == "--replay") {
      flags.replay = value;
    } else {
      const auto number = ParseNumber(value);
      if (!number) return fmt::format("{} {} is not a number", name, value);
      if (name == "--seconds") {
        flags.seconds = static_cast<double>(*number);
      } else if (name == "--steps") {
        flags.num_steps = *number;
        flags.seconds = 1e9;
      } else if (name == "--seed") {
        flags.seed = *number;
      } else if (name == "--check-every" && *number > 0) {
        flags.check_every = *number;
      } else {
        return fmt::format("{} {} is unknown", name, value);
      }
    }
  }
  return std::nullopt;
}

void PrintFailure(const EngineSetup& setup, const HuntResult::Failure& failure,
                  const SimulationOptions& options) {
  fmt::print("\n{} fails with seed {} after {} operations: {}\n", setup.name, failure.seed,
             failure.operations.size(), failure.finding);
  std::fflush(stdout);
  SimulationOptions traced = options;
  const auto shrunk = Shrink(setup, failure.operations, options, failure.finding, kShrinkSeconds);
  traced.is_traced = true;
  fmt::print("shrunk to {} operations:\n\nconfig {}\n", shrunk.size(), setup.name);
  for (const Operation& operation : shrunk) fmt::print("{}\n", ToText(operation));
  fmt::print("\n{}\n", FindingOf(setup, shrunk, traced).value_or("which passes when traced"));
  std::fflush(stdout);
}

std::string ToText(const SimulationCounts& counts) {
  return fmt::format(
      "requests {} refused {} cancelled {} late {} failed {} tokens {} preempted {} waits {} "
      "forks {} loads {} pauses {} self-checks {} shared {} drafts {} accepted {}",
      counts.requests, counts.refused, counts.cancelled, counts.deadlines, counts.failed,
      counts.tokens, counts.preemptions, counts.waits, counts.forks, counts.loads, counts.pauses,
      counts.self_checks, counts.shared_groups, counts.drafts, counts.accepted);
}

int RunAll(const Flags& flags) {
  std::vector<const EngineSetup*> setups;
  for (const EngineSetup& setup : Setups()) {
    if (flags.setup.empty() || setup.name == flags.setup) setups.push_back(&setup);
  }
  if (setups.empty()) return Usage("no configuration " + flags.setup);
  const HuntLimits limits{.seconds = flags.seconds / static_cast<double>(setups.size()),
                          .num_steps = flags.num_steps == UINT64_MAX
                                           ? UINT64_MAX
                                           : flags.num_steps / setups.size() + 1};
  const SimulationOptions options{.full_check_every = flags.check_every};
  uint64_t num_steps = 0;
  size_t num_failed = 0;
  double seconds = 0;
  fmt::print("seed {}\n", flags.seed);
  for (const EngineSetup* const setup : setups) {
    const HuntResult result = Hunt(*setup, flags.seed, limits, options);
    fmt::print("{:16} {:6} cases {:9} steps {:6.1f} s  {}\n  {}\n", setup->name, result.num_cases,
               result.counts.steps, result.seconds, result.failure ? "FAILED" : "ok",
               ToText(result.counts));
    if (result.failure) PrintFailure(*setup, *result.failure, options);
    std::fflush(stdout);
    num_steps += result.counts.steps;
    seconds += result.seconds;
    num_failed += result.failure.has_value();
  }
  fmt::print("{} steps in {:.1f} s, {:.0f} a second; {} of {} configurations failed\n", num_steps,
             seconds, static_cast<double>(num_steps) / seconds, num_failed, setups.size());
  return num_failed > 0 ? 1 : 0;
}

int Replay(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Usage(path + " cannot be read");
  const EngineSetup* setup = nullptr;
  std::vector<Operation> operations;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("config ")) {
      setup = FindSetup(line.substr(7));
    } else if (const auto operation = ParseOperation(line)) {
      operations.push_back(*operation);
    } else {
      return Usage(fmt::format("{}: '{}' is no operation", path, line));
    }
  }
  if (setup == nullptr) return Usage(path + " has no line 'config NAME' with a known name");
  RunCase(*setup, operations,
          {.full_check_every = 1, .mutation = Mutation::kNone, .is_traced = true});
  fmt::print("{} operations: ok\n", operations.size());
  return 0;
}

int List() {
  for (const EngineSetup& setup : Setups()) fmt::print("{:16} {}\n", setup.name, setup.help);
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  const std::span<char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
  if (const auto wrong = ParseFlags(arguments, flags)) return Usage(*wrong);
  if (flags.is_list) return List();
  if (!flags.replay.empty()) return Replay(flags.replay);
  return RunAll(flags);
}

}  // namespace
}  // namespace kvern::engine::model_check

int main(int argc, char** argv) { return kvern::engine::model_check::Main(argc, argv); }
