// What the flags of `kvern bench` have in common: lists of counts, and the commands' declarations.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"

namespace CLI {
class App;
}

namespace kvern::cli {

// A flag that may be given several times, each time with one value or several: "-p 128,512 -p 1".
using CountList = std::vector<std::string>;

struct CountRange {
  uint32_t low;
  uint32_t high;
};

// `help` says what is counted. The default shows in --help.
void AddCountsFlag(CLI::App& app, const std::string& names, CountList& counts,
                   const std::string& help);

// -o, for ParseBenchFormat.
void AddFormatFlag(CLI::App& app, std::string& format);

// The numbers in the order given. Errors: kInvalidArgument, naming `flag`.
Result<std::vector<uint32_t>> ParseCounts(const char* flag, const CountList& counts,
                                          CountRange range);

// "P,N", each in `range`. Errors: kInvalidArgument, naming `flag`.
Result<std::pair<uint32_t, uint32_t>> ParseCountPair(const char* flag, const std::string& pair,
                                                     CountRange range);

inline constexpr CountRange kTokenRange = {.low = 0, .high = 1 << 20};
inline constexpr CountRange kThreadRange = {.low = 1, .high = 256};

// Of the machine, at least one.
uint32_t DefaultThreads();

// The subcommands of bench, one cmd_bench_<name>.cc each.
Action DeclareBenchBatched(CLI::App& app);
Action DeclareBenchKernels(CLI::App& app);
Action DeclareBenchKv(CLI::App& app);
Action DeclareBenchServe(CLI::App& app);

}  // namespace kvern::cli
