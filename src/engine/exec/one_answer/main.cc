// kvern_one_answer: one answer, everywhere, on a real model (docs/one-answer.md).
//
//   kvern_one_answer [--suite ci|full] [--only NAME] [--seed N] [MODEL]
//   kvern_one_answer --suite soak [--minutes N] [--seed N] [MODEL]
//   kvern_one_answer --list [--suite ci|full]
//
// Run from the root of the tree: prompts are made of docs/. Exit status 1: something differed;
// 2: wrong usage, or the model cannot be opened.
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "engine/exec/one_answer/combinations.h"
#include "engine/exec/one_answer/grid.h"
#include "engine/exec/one_answer/guards.h"
#include "engine/exec/one_answer/lab.h"
#include "engine/exec/one_answer/soak.h"

namespace kvern::engine::one_answer {
namespace {

constexpr const char* kDefaultModel = "build/models/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kDocsFolder = "docs";

struct Flags {
  std::string suite = "ci";
  std::string only = {};  // part of a name; empty: all
  std::string model = kDefaultModel;
  uint64_t seed = 1;
  uint64_t minutes = 60;
  bool is_list = false;
};

// One thing that is run, and compared.
struct Check {
  std::string name;
  std::function<Result<Outcome>()> run;
};

int Usage(const std::string& what) {
  fmt::print(stderr,
             "kvern_one_answer: {}: use --suite ci|full|soak, --minutes N, --seed N, --list, "
             "--only NAME, MODEL\n",
             what);
  return 2;
}

// The flag that is wrong, or none.
std::optional<std::string> ParseFlags(std::span<char* const> arguments, Flags& flags) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    if (name == "--list") {
      flags.is_list = true;
      continue;
    }
    if (!name.starts_with("-")) {
      flags.model = name;
      continue;
    }
    if (i + 1 == arguments.size()) return fmt::format("{} is unknown or lacks its value", name);
    const std::string_view value = arguments[++i];
    if (name == "--suite" || name == "--only") {
      (name == "--suite" ? flags.suite : flags.only) = value;
      continue;
    }
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = error == std::errc{} && end == value.data() + value.size();
    if (!is_number || (name != "--seed" && name != "--minutes")) {
      return fmt::format("{} {} is unknown", name, value);
    }
    (name == "--seed" ? flags.seed : flags.minutes) = number;
  }
  if (flags.suite == "ci" || flags.suite == "full" || flags.suite == "soak") return std::nullopt;
  return fmt::format("--suite {} is unknown", flags.suite);
}

std::vector<Check> ChecksOf(const Flags& flags, Lab& lab, Grid& grid) {
  const Suite suite = flags.suite == "full" ? Suite::kFull : Suite::kCi;
  const bool is_full = suite == Suite::kFull;
  std::vector<Check> checks;
  checks.push_back({"alone, and alone without any cache",
                    [&grid, is_full] { return grid.CheckReference(is_full ? 512 : 33); }});
  for (const Combination& combination : Combinations(suite)) {
    checks.push_back({combination.name, [&grid, combination, seed = flags.seed] {
                        return grid.Run(combination, seed);
                      }});
  }
  checks.push_back({"32 requests with one prefix compute it once",
                    [&lab, &grid, is_full] { return CheckSharedPrefix(lab, grid, is_full); }});
  checks.push_back({"a bit that flips in the cache is noticed (K5)",
                    [&lab, &grid] { return CheckSelfCheckFires(lab, grid); }});
  checks.push_back({"a block with two answers is noticed (K8)",
                    [&lab, &grid] { return CheckTwoAnswersFires(lab, grid); }});
  std::erase_if(
      checks, [&](const Check& check) { return check.name.find(flags.only) == std::string::npos; });
  return checks;
}

int RunAll(const std::vector<Check>& checks) {
  size_t num_failed = 0, num_answers = 0, num_tokens = 0, num_rows = 0;
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  const auto seconds_since = [](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
  };
  for (const Check& check : checks) {
    const Result<Outcome> result = check.run();
    if (!result.ok()) return Usage(result.error().message);
    const Outcome& outcome = *result;
    const EngineStats& stats = outcome.stats;
    fmt::print(
        "{:55} {:6.1f} s {} {:4} answers {:6} tokens {:6} rows | steps {} hits {} preempted {} "
        "self-checks {} merged {} drafts {}/{} chunks left {}\n",
        check.name, seconds_since(last), outcome.findings.empty() ? "ok    " : "FAILED",
        outcome.num_answers, outcome.num_tokens, outcome.num_rows, stats.steps,
        stats.kv.prompts.hit(), stats.preemptions, stats.self_checks, stats.kv.blocks_merged,
        stats.accepted_tokens, stats.drafted_tokens, outcome.num_left);
    for (const std::string& finding : outcome.findings) fmt::print("    {}\n", finding);
    std::fflush(stdout);
    last = std::chrono::steady_clock::now();
    num_failed += outcome.findings.empty() ? 0 : 1;
    num_answers += outcome.num_answers;
    num_tokens += outcome.num_tokens;
    num_rows += outcome.num_rows;
  }
  fmt::print("{} answers, {} tokens and {} rows of logits compared in {:.0f} s; {} of {} failed\n",
             num_answers, num_tokens, num_rows, seconds_since(begin), num_failed, checks.size());
  return num_failed > 0 ? 1 : 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  const std::span<char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
  if (const auto wrong = ParseFlags(arguments, flags)) return Usage(*wrong);
  const std::string twin_path =
      std::filesystem::temp_directory_path() / fmt::format("kvern_one_answer_{}.gguf", getpid());
  Lab lab(flags.model, twin_path);
  Grid grid(&lab, kDocsFolder);
  int status = 0;
  if (flags.suite == "soak") {
    const Status soaked = Soak(lab, grid, flags.seed, flags.minutes);
    if (!soaked.ok()) fmt::print("{}\n", soaked.error().message);
    status = soaked.ok() ? 0 : 1;
  } else {
    const std::vector<Check> checks = ChecksOf(flags, lab, grid);
    if (flags.is_list) {
      for (const Check& check : checks) fmt::print("{}\n", check.name);
    } else if (checks.empty()) {
      status = Usage("nothing has a name with " + flags.only);
    } else {
      fmt::print("seed {}\n", flags.seed);
      status = RunAll(checks);
    }
  }
  std::error_code ignored;
  std::filesystem::remove(twin_path, ignored);
  return status;
}

}  // namespace
}  // namespace kvern::engine::one_answer

int main(int argc, char** argv) { return kvern::engine::one_answer::Main(argc, argv); }
