// The command line of a model checker.
//
//   PROGRAM [--seconds N] [--steps N] [--seed N] [--config NAME] [--check-every N]
//   PROGRAM --replay FILE      a case as it prints them, with what each step did
//   PROGRAM --list             the configurations
//
// Every configuration gets an equal part of the time and of the steps. A case that fails is shrunk
// and printed in the form that --replay reads. Exit status 1: something was found; 2: wrong usage.
//
// A checker is a struct with
//   kName, kCheckEvery (the default);
//   Setup (with name and help), Options (with full_check_every and is_traced), Operation;
//   Setups(), FindSetup(name), ParseOperation(line);
//   NumSteps(HuntResult), Details(HuntResult): a line more for people, or "";
// beside which Hunt, Shrink, FindingOf, RunCase (runner.h) and ToText (operation.h) are found by
// its types. One thread: it forks.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/model_check/child.h"

namespace kvern::kv::model_check {

struct ProgramFlags {
  double seconds = 10;
  uint64_t num_steps = UINT64_MAX;
  uint64_t seed = 1;
  uint64_t check_every = 1;
  std::string setup;   // empty: all
  std::string replay;  // a file; empty: none
  bool is_list = false;
};

// Says what is wrong and what is right. Returns the exit status.
int Usage(std::string_view program, const std::string& what);

// What is wrong, or none.
std::optional<std::string> ParseFlags(std::span<char* const> arguments, ProgramFlags& flags);

template <typename Checker>
class Program {
 public:
  static int Main(int argc, char** argv) {
    ProgramFlags flags{.check_every = Checker::kCheckEvery, .setup = {}, .replay = {}};
    const std::span<char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
    if (const auto wrong = ParseFlags(arguments, flags)) return Usage(Checker::kName, *wrong);
    if (flags.is_list) return List();
    return flags.replay.empty() ? RunAll(flags) : Replay(flags.replay);
  }

 private:
  using Setup = typename Checker::Setup;
  using Options = typename Checker::Options;
  using Operation = typename Checker::Operation;

  static int List() {
    for (const Setup& setup : Checker::Setups()) fmt::print("{:16} {}\n", setup.name, setup.help);
    return 0;
  }

  static int RunAll(const ProgramFlags& flags) {
    std::vector<const Setup*> setups;
    for (const Setup& setup : Checker::Setups()) {
      if (flags.setup.empty() || setup.name == flags.setup) setups.push_back(&setup);
    }
    if (setups.empty()) return Usage(Checker::kName, "no configuration " + flags.setup);
    const HuntLimits limits{.seconds = flags.seconds / static_cast<double>(setups.size()),
                            .num_steps = flags.num_steps == UINT64_MAX
                                             ? UINT64_MAX
                                             : flags.num_steps / setups.size() + 1};
    Options options;
    options.full_check_every = flags.check_every;
    uint64_t num_steps = 0;
    size_t num_failed = 0;
    double seconds = 0;
    fmt::print("seed {}\n", flags.seed);
    for (const Setup* const setup : setups) {
      const auto result = Hunt(*setup, flags.seed, limits, options);
      fmt::print("{:16} {:8} cases {:10} steps {:7.1f} s  {}\n", setup->name, result.num_cases,
                 Checker::NumSteps(result), result.seconds, result.failure ? "FAILED" : "ok");
      fmt::print("{}", Checker::Details(result));
      if (result.failure) PrintFailure(*setup, *result.failure, options);
      std::fflush(stdout);
      num_steps += Checker::NumSteps(result);
      seconds += result.seconds;
      num_failed += result.failure.has_value();
    }
    fmt::print("{} steps in {:.1f} s, {:.0f} a second; {} of {} configurations failed\n", num_steps,
               seconds, static_cast<double>(num_steps) / seconds, num_failed, setups.size());
    return num_failed > 0 ? 1 : 0;
  }

  static void PrintFailure(const Setup& setup, const FailedCase<Operation>& failure,
                           const Options& options) {
    constexpr double kShrinkSeconds = 60;
    fmt::print("\n{} fails with seed {} after {} operations: {}\n", setup.name, failure.seed,
               failure.operations.size(), failure.finding);
    std::fflush(stdout);
    const auto shrunk = Shrink(setup, failure.operations, options, failure.finding, kShrinkSeconds);
    fmt::print("shrunk to {} operations:\n\nconfig {}\n", shrunk.size(), setup.name);
    for (const Operation& operation : shrunk) fmt::print("{}\n", ToText(operation));
    Options traced = options;
    traced.is_traced = true;
    fmt::print("\n{}\n", FindingOf(setup, shrunk, traced).value_or("which passes when traced"));
    std::fflush(stdout);
  }

  static int Replay(const std::string& path) {
    std::ifstream file(path);
    if (!file) return Usage(Checker::kName, path + " cannot be read");
    const Setup* setup = nullptr;
    std::vector<Operation> operations;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      if (line.starts_with("config ")) {
        setup = Checker::FindSetup(line.substr(7));
      } else if (const auto operation = Checker::ParseOperation(line)) {
        operations.push_back(*operation);
      } else {
        return Usage(Checker::kName, fmt::format("{}: '{}' is no operation", path, line));
      }
    }
    if (setup == nullptr) {
      return Usage(Checker::kName, path + " has no line 'config NAME' with a known name");
    }
    Options options;
    options.full_check_every = 1;
    options.is_traced = true;
    RunCase(*setup, operations, options);
    fmt::print("{} operations: ok\n", operations.size());
    return 0;
  }
};

}  // namespace kvern::kv::model_check
