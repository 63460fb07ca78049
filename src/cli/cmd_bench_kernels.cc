// kvern bench kernels: single kernels, beside what this machine was just measured to do.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/bench_kernels.h"
#include "cli/bench_table.h"
#include "cli/progress.h"
#include "compute/isa.h"

namespace kvern::cli {
namespace {

struct KernelsFlags {
  CountList threads = {DefaultThreads() == 1 ? "1" : fmt::format("1,{}", DefaultThreads())};
  std::string only;
  std::string isa = "auto";
  uint32_t rounds = 5;
  std::string format = "md";
};

struct Unit {
  const char* limit_name;  // in the table
  const char* limit_key;   // in JSON
  const char* unit;
};

// By Limit.
constexpr Unit kRateUnits[] = {
    {"memory read", "read", "GB/s"},
    {"integer dots", "dot", "GOP/s"},
    {"multiply-adds", "fma", "GFLOP/s"},
    {"", "none", "ns/element"},
};

const Unit& UnitOf(Limit limit) { return kRateUnits[static_cast<size_t>(limit)]; }

double InUnit(Limit limit, double rate) { return limit == Limit::kNone ? 1e9 / rate : rate / 1e9; }

// The groups whose cases have `only` in their names, without the other cases.
Result<std::vector<KernelGroup>> ChooseGroups(const compute::Isa& isa, const std::string& only) {
  std::vector<KernelGroup> groups = KernelGroups(isa);
  std::set<std::string> kernels;
  for (KernelGroup& group : groups) {
    for (const KernelCase& kernel : group.cases) kernels.insert(kernel.kernel);
    std::erase_if(group.cases, [&](const KernelCase& kernel) {
      return CaseName(kernel).find(only) == std::string::npos;
    });
  }
  std::erase_if(groups, [](const KernelGroup& group) { return group.cases.empty(); });
  if (!groups.empty()) return groups;
  std::string names;
  for (const std::string& name : kernels) names += (names.empty() ? "" : ", ") + name;
  return Errorf(ErrorCode::kInvalidArgument,
                "--only: no kernel has '{}' in its name: use a part of 'KERNEL TYPE', KERNEL being "
                "one of {}",
                only, names);
}

void AddLimits(BenchTable& table, const KernelBench& bench, const compute::Isa& isa) {
  for (size_t i = 0; i < kNumLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    for (size_t team = 0; team < bench.num_teams(); ++team) {
      const Unit& unit = UnitOf(limit);
      const double value = InUnit(limit, bench.limits(team)[i]);
      table.Add(std::vector<std::string>{std::string("limit: ") + unit.limit_name, "", "",
                                         std::to_string(bench.num_threads(team)),
                                         fmt::format("{:.1f} {}", value, unit.unit), ""},
                {{"kernel", "limit"},
                 {"type", unit.limit_key},
                 {"shape", ""},
                 {"n_threads", bench.num_threads(team)},
                 {"isa", isa.name},
                 {"value", value},
                 {"unit", unit.unit},
                 {"limit", unit.limit_key},
                 {"percent_of_limit", 100},
                 {"best_ns", nullptr}});
    }
  }
}

void AddResult(BenchTable& table, const KernelBench& bench, const compute::Isa& isa,
               const KernelResult& result) {
  const Unit& unit = UnitOf(result.limit);
  const double value = InUnit(result.limit, result.rate);
  nlohmann::ordered_json record = {{"kernel", result.kernel},
                                   {"type", result.type},
                                   {"shape", result.shape},
                                   {"n_threads", bench.num_threads(result.team)},
                                   {"isa", isa.name},
                                   {"value", value},
                                   {"unit", unit.unit},
                                   {"limit", unit.limit_key},
                                   {"percent_of_limit", nullptr},
                                   {"best_ns", result.seconds * 1e9}};
  std::string share;
  if (result.limit != Limit::kNone) {
    const double limit = bench.limits(result.team)[static_cast<size_t>(result.limit)];
    record["percent_of_limit"] = 100 * result.rate / limit;
    share = fmt::format("{:.0f} % of {}", 100 * result.rate / limit, unit.limit_name);
  }
  table.Add(
      std::vector<std::string>{
          result.kernel, result.type, result.shape, std::to_string(bench.num_threads(result.team)),
          fmt::format("{:.{}f} {}", value, result.limit == Limit::kNone ? 3 : 1, unit.unit), share},
      record);
}

Status BenchKernels(const KernelsFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const BenchFormat format, ParseBenchFormat(flags.format));
  KVERN_ASSIGN_OR_RETURN(const auto threads, ParseCounts("-t", flags.threads, kThreadRange));
  if (flags.rounds == 0) {
    return Errorf(ErrorCode::kInvalidArgument, "-r: 0 repetitions measure nothing: give 1 or more");
  }
  KVERN_ASSIGN_OR_RETURN(const compute::Isa* isa, compute::SelectIsa(flags.isa));
  KVERN_ASSIGN_OR_RETURN(std::vector<KernelGroup> groups, ChooseGroups(*isa, flags.only));
  KVERN_ASSIGN_OR_RETURN(KernelBench bench, KernelBench::Create(isa, threads, flags.rounds));
  {
    Progress progress("Measuring");
    for (size_t i = 0; i < groups.size(); ++i) {
      progress.Update(static_cast<double>(i) / static_cast<double>(groups.size()));
      KVERN_RETURN_IF_ERROR(bench.Run(std::move(groups[i])));
    }
  }
  BenchTable table(format,
                   {{.title = "kernel", .width = 20, .is_text = true},
                    {.title = "type", .width = 11, .is_text = true},
                    {.title = "shape", .width = 15, .is_text = true},
                    {.title = "threads", .width = 7},
                    {.title = "speed", .width = 16},
                    {.title = "of the limit", .width = 24, .is_text = true}},
                   PrintNow);
  AddLimits(table, bench, *isa);
  for (const KernelResult& result : bench.results()) AddResult(table, bench, *isa, result);
  table.Finish();
  return {};
}

}  // namespace

Action DeclareBenchKernels(CLI::App& app) {
  const auto flags = std::make_shared<KernelsFlags>();
  AddCountsFlag(app, "-t,--threads", flags->threads, "Threads");
  app.add_option("--only", flags->only,
                 "Only kernels with this in their names, such as 'gemm Q4_1' (default: all)");
  app.add_option("--isa", flags->isa, "Instruction set of the kernels")->capture_default_str();
  app.add_option("-r,--repetitions", flags->rounds,
                 "Measurements of each, of which the best counts")
      ->capture_default_str();
  AddFormatFlag(app, flags->format);
  return [flags] { return BenchKernels(*flags); };
}

}  // namespace kvern::cli
