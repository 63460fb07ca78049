// kvern bench: speed and memory on this machine, in the words of llama-bench's users.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/bench_memory.h"
#include "cli/bench_speed.h"
#include "cli/bench_table.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"

namespace kvern::cli {
namespace {

struct SpeedFlags {
  EngineFlags engine;
  std::vector<std::string> models;
  CountList prompts = {"512"};
  CountList gens = {"128"};
  CountList pairs;
  CountList depths = {"0"};
  CountList threads = {std::to_string(DefaultThreads())};
  uint32_t repetitions = 5;
  std::string format = "md";
};

// What the flags ask for, checked.
struct SpeedPlan {
  std::vector<std::string> models;
  std::vector<uint32_t> threads;
  std::vector<SpeedTest> tests;
  const kv::Strategy* strategy;
  uint32_t repetitions;
  uint32_t context;  // that the longest test needs
};

Result<std::vector<SpeedTest>> PlanTests(const SpeedFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const auto prompts, ParseCounts("-p", flags.prompts, kTokenRange));
  KVERN_ASSIGN_OR_RETURN(const auto gens, ParseCounts("-n", flags.gens, kTokenRange));
  KVERN_ASSIGN_OR_RETURN(const auto depths, ParseCounts("-d", flags.depths, kTokenRange));
  std::vector<SpeedTest> tests;
  for (const uint32_t depth : depths) {
    for (const uint32_t count : prompts) tests.push_back({.num_prompt = count, .depth = depth});
    for (const uint32_t count : gens) tests.push_back({.num_gen = count, .depth = depth});
    for (const std::string& text : flags.pairs) {
      KVERN_ASSIGN_OR_RETURN(const auto pair, ParseCountPair("-pg", text, kTokenRange));
      tests.push_back({.num_prompt = pair.first, .num_gen = pair.second, .depth = depth});
    }
  }
  std::erase_if(tests, [](const SpeedTest& test) { return test.num_tokens() == 0; });
  if (tests.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "nothing to measure: give -p, -n or -pg");
  }
  return tests;
}

Result<SpeedPlan> MakePlan(const SpeedFlags& flags) {
  SpeedPlan plan;
  plan.models = flags.models.empty() ? std::vector<std::string>{""} : flags.models;
  KVERN_ASSIGN_OR_RETURN(plan.threads, ParseCounts("-t", flags.threads, kThreadRange));
  KVERN_ASSIGN_OR_RETURN(plan.tests, PlanTests(flags));
  KVERN_ASSIGN_OR_RETURN(plan.strategy, StrategyFromFlags(flags.engine));
  if (flags.repetitions == 0) {
    return Errorf(ErrorCode::kInvalidArgument, "-r: 0 repetitions measure nothing: give 1 or more");
  }
  plan.repetitions = flags.repetitions;
  plan.context = 0;
  for (const SpeedTest& test : plan.tests) {
    plan.context = std::max(plan.context, test.depth + test.num_tokens());
  }
  return plan;
}

std::vector<BenchColumn> Columns(const EngineFlags& flags) {
  std::vector<BenchColumn> columns = {{.title = "model", .width = 24, .is_text = true},
                                      {.title = "size", .width = 10},
                                      {.title = "params", .width = 10},
                                      {.title = "threads", .width = 7}};
  if (flags.k_dtype != "f16") columns.push_back({.title = "type_k", .width = 6});
  if (flags.v_dtype != "f16") columns.push_back({.title = "type_v", .width = 6});
  columns.push_back({.title = "memory", .width = 10});
  columns.push_back({.title = "test", .width = 16});
  columns.push_back({.title = "t/s", .width = 20});
  return columns;
}

std::string FormatMebibytes(uint64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

struct SpeedRow {
  const EngineFlags& flags;  // of the opened model
  const engine::OpenedModel& model;
  const SpeedTest& test;
  const SpeedResult& result;
};

void AddRow(BenchTable& table, const SpeedRow& row) {
  const ModelSummary summary = Summarize(row.model);
  const SpeedResult& result = row.result;
  std::vector<double> samples_ts;
  for (const double ns : result.samples_ns) {
    samples_ts.push_back(1e9 * row.test.num_tokens() / ns);
  }
  const MeanSd ns = ComputeMeanSd(result.samples_ns), ts = ComputeMeanSd(samples_ts);

  std::vector<std::string> cells = {
      summary.type, FormatMebibytes(summary.tensor_bytes),
      fmt::format("{:.2f} M", static_cast<double>(summary.num_params) / 1e6),
      fmt::format("{}", *row.flags.threads)};
  if (row.flags.k_dtype != "f16") cells.push_back(row.flags.k_dtype);
  if (row.flags.v_dtype != "f16") cells.push_back(row.flags.v_dtype);
  cells.push_back(FormatMebibytes(result.peak_rss_bytes));
  cells.push_back(TestName(row.test));
  cells.push_back(FormatMeanSd(ts));

  table.Add(cells, {{"model_filename", row.model.gguf().path()},
                    {"model_type", summary.type},
                    {"model_size", summary.tensor_bytes},
                    {"model_n_params", summary.num_params},
                    {"n_batch", row.flags.batch},
                    {"n_threads", *row.flags.threads},
                    {"type_k", row.flags.k_dtype},
                    {"type_v", row.flags.v_dtype},
                    {"isa", row.model.isa().name},
                    {"kv", row.flags.strategy},
                    {"n_prompt", row.test.num_prompt},
                    {"n_gen", row.test.num_gen},
                    {"n_depth", row.test.depth},
                    {"test_time", result.test_time},
                    {"avg_ns", ns.mean},
                    {"stddev_ns", ns.sd},
                    {"avg_ts", ts.mean},
                    {"stddev_ts", ts.sd},
                    {"kv_bytes", result.kv_bytes},
                    {"peak_rss_bytes", result.peak_rss_bytes},
                    {"samples_ns", result.samples_ns},
                    {"samples_ts", samples_ts}});
}

Status BenchSpeed(const SpeedFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const BenchFormat format, ParseBenchFormat(flags.format));
  KVERN_ASSIGN_OR_RETURN(const SpeedPlan plan, MakePlan(flags));
  BenchTable table(format, Columns(flags.engine), PrintNow);
  for (const std::string& path : plan.models) {
    for (const uint32_t threads : plan.threads) {
      EngineFlags engine = flags.engine;
      engine.model = path;
      engine.threads = threads;
      engine.context = plan.context;
      ResetPeakMemory();
      KVERN_ASSIGN_OR_RETURN(engine::OpenedModel model, OpenFromFlags(engine));
      for (const SpeedTest& test : plan.tests) {
        KVERN_ASSIGN_OR_RETURN(const SpeedResult result,
                               RunSpeedTest(model, *plan.strategy, test, plan.repetitions));
        AddRow(table, {engine, model, test, result});
      }
    }
  }
  table.Finish();
  return {};
}

Action DeclareSpeed(CLI::App& app) {
  const auto flags = std::make_shared<SpeedFlags>();
  app.add_option("-m,--model", flags->models, "Model files (default: the fetched model)")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddCountsFlag(app, "-p,--n-prompt", flags->prompts, "Tokens of the prompts; 0 is none");
  AddCountsFlag(app, "-n,--n-gen", flags->gens, "New tokens; 0 is none");
  app.add_option("--prompt-gen", flags->pairs,
                 "P,N: a prompt and new tokens in one time (short: -pg)")
      ->allow_extra_args(false);
  AddCountsFlag(app, "-d,--n-depth", flags->depths, "Tokens before them, computed unmeasured");
  AddCountsFlag(app, "-t,--threads", flags->threads, "Threads");
  AddComputeFlags(app, flags->engine);
  AddStrategyFlag(app, flags->engine);
  app.add_option("-r,--repetitions", flags->repetitions, "Measured runs of each test")
      ->capture_default_str();
  AddFormatFlag(app, flags->format);
  return [flags] { return BenchSpeed(*flags); };
}

struct SubcommandRow {
  const char* name;
  const char* help;
  Action (*declare)(CLI::App& app);
};

constexpr SubcommandRow kBenchSubcommands[] = {
    {"batched", "Measure many sequences at once, with or without a prefix in common",
     DeclareBenchBatched},
    {"kernels", "Measure single kernels, and how much of this machine's limits that is",
     DeclareBenchKernels},
    {"kv", "Compare types of K and V: memory, speed, and what they lose on a text", DeclareBenchKv},
    {"serve",
     "Measure an engine under a workload: latencies, speed, the KV cache and what limits it",
     DeclareBenchServe},
};

}  // namespace

Action DeclareBench(CLI::App& app) {
  struct Subcommand {
    CLI::App* app;
    Action action;
  };
  const Action speed = DeclareSpeed(app);
  std::vector<Subcommand> subcommands;
  for (const auto& [name, help, declare] : kBenchSubcommands) {
    CLI::App* const subcommand = app.add_subcommand(name, help);
    subcommands.push_back({subcommand, declare(*subcommand)});
  }
  app.require_subcommand(0, 1);
  return [&app, speed, subcommands]() -> Status {
    for (const Subcommand& subcommand : subcommands) {
      if (!subcommand.app->parsed()) continue;
      for (const CLI::Option* option : app.get_options()) {
        if (option->empty()) continue;
        return Errorf(ErrorCode::kInvalidArgument, "{}: belongs behind 'bench {}'",
                      option->get_name(), subcommand.app->get_name());
      }
      return subcommand.action();
    }
    return speed();
  };
}

}  // namespace kvern::cli
