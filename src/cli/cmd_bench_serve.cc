// kvern bench serve: an engine under a workload, and how it fared.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/bench_flags.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/serve_measure.h"
#include "cli/serve_table.h"
#include "engine/policy.h"
#include "engine/spec/table.h"
#include "model/gguf.h"
#include "model/vocab_loader.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kBlockMultiple = 16;
constexpr uint32_t kMaxShape = 1 << 20;
// What nobody asked for should fit into a small machine.
constexpr size_t kMaxDefaultKvTokens = 98304;

// What a server that runs has been told already.
constexpr const char* kEngineFlags[] = {
    "--threads",   "--batch-size",  "--cache-type-k", "--cache-type-v", "--isa",
    "--kv-tokens", "--max-running", "--max-waiting",  "--policy",       "--target-token-ms",
    "--eviction",  "--speculation", "--draft-max",    "--model-draft"};

// The numbers of WorkloadShape, none where the workload's own are kept.
struct ShapeFlags {
  std::optional<uint32_t> requests, turns, branches, prefix, tail, prompt, new_tokens, think_ms;
};

struct LoadFlags {
  std::string trace;
  std::optional<double> scale;
  size_t skip = 0;
  std::optional<double> rate;
  std::optional<size_t> concurrency;
  std::optional<double> duration_s;
  uint64_t seed = 1;
  bool warm = false;
};

struct SchedulingFlags {
  std::optional<size_t> kv_tokens;
  double target_ms = 0;
  SchedulerOptions scheduler;
  SpeculationOptions speculation;
  std::string eviction = "lru";
};

struct ReportFlags {
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tpot_ms;
  std::string compare;
  bool check = false;
  bool json = false;
  std::string svg;
  std::string chart = "latency";
  std::string prompts;
};

struct TargetFlags {
  std::string url;  // empty: an engine in this process
  std::string api_key;
};

struct ServeFlags {
  std::string workload = "shared-prefix";
  TargetFlags target;
  EngineFlags engine;
  ShapeFlags shape;
  LoadFlags load;
  SchedulingFlags scheduling;
  ReportFlags report;
};

struct ShapeField {
  const char* flag;
  const char* help;
  std::optional<uint32_t> ShapeFlags::*given;
  uint32_t WorkloadShape::*value;
};

constexpr ShapeField kShapeFields[] = {
    {"--requests", "Requests, or sessions, agents, documents, streams", &ShapeFlags::requests,
     &WorkloadShape::requests},
    {"--turns", "Turns of a session, rounds of an agent, questions about a document",
     &ShapeFlags::turns, &WorkloadShape::turns},
    {"--branches", "Sub-agents at once", &ShapeFlags::branches, &WorkloadShape::branches},
    {"--prefix", "Tokens of what is shared, or of a stream's context", &ShapeFlags::prefix,
     &WorkloadShape::prefix},
    {"--tail", "Tokens of a prompt that nobody shares", &ShapeFlags::tail, &WorkloadShape::tail},
    {"--prompt", "Tokens of the long prompt", &ShapeFlags::prompt, &WorkloadShape::prompt},
    {"--new", "New tokens of a reply", &ShapeFlags::new_tokens, &WorkloadShape::new_tokens},
    {"--think-ms", "Between a reply and the next turn; of a trace, at most", &ShapeFlags::think_ms,
     &WorkloadShape::think_ms},
};

Result<WorkloadShape> ShapeFrom(const ShapeFlags& flags, const WorkloadRow& row) {
  WorkloadShape shape = row.defaults;
  for (const ShapeField& field : kShapeFields) {
    const std::optional<uint32_t> given = flags.*field.given;
    if (!given) continue;
    if (row.defaults.*field.value == 0) {
      return FlagError(fmt::format("{}: the workload {} has no such thing", field.flag, row.name));
    }
    const bool may_be_zero = field.value == &WorkloadShape::think_ms;
    if ((*given == 0 && !may_be_zero) || *given > kMaxShape) {
      return FlagError(fmt::format("{}: {} is not from {} to {}", field.flag, *given,
                                   may_be_zero ? 0 : 1, kMaxShape));
    }
    shape.*field.value = *given;
  }
  return shape;
}

Result<Workload> WorkloadFrom(const ServeFlags& flags, const WorkloadRow& row) {
  WorkloadOptions options{.trace_file = flags.load.trace, .scale = flags.load.scale};
  KVERN_ASSIGN_OR_RETURN(options.shape, ShapeFrom(flags.shape, row));
  if (row.plan != PlanTrace && (!flags.load.trace.empty() || flags.load.scale)) {
    return FlagError(fmt::format("--trace and --scale: the workload {} has no trace", row.name));
  }
  if (flags.engine.context.value_or(0) > 0) options.max_context = *flags.engine.context;
  KVERN_ASSIGN_OR_RETURN(Workload workload, row.plan(options));
  KVERN_RETURN_IF_ERROR(SkipRequests(workload, flags.load.skip));
  if (flags.load.rate) {
    if (!(*flags.load.rate > 0)) return FlagError("--rate: give more than 0 requests a second");
    SetArrivalRate(workload, *flags.load.rate, flags.load.seed);
  }
  return workload;
}

Result<EngineOptions> EngineFrom(const ServeFlags& flags, const Workload& workload) {
  const SchedulingFlags& scheduling = flags.scheduling;
  EngineOptions options{.scheduler = scheduling.scheduler, .speculation = scheduling.speculation};
  KVERN_RETURN_IF_ERROR(SetEngineOptions(flags.engine, options));
  const size_t longest = LongestSequence(workload);
  const size_t context = (longest + kBlockMultiple - 1) / kBlockMultiple * kBlockMultiple;
  options.model.context = flags.engine.context.value_or(static_cast<uint32_t>(context));
  // Room for all of them at once, each with blocks of its own, so that a cache that is off is not
  // short of memory as well.
  const size_t all = SumOfSequences(workload) + kBlockMultiple * workload.requests.size();
  options.model.kv_tokens =
      scheduling.kv_tokens.value_or(std::max(4 * context, std::min(all, kMaxDefaultKvTokens)));
  options.model.eviction = scheduling.eviction;
  if (!(scheduling.target_ms >= 0)) return FlagError("--target-token-ms: is negative");
  options.scheduler.target_token_us = static_cast<int64_t>(1000 * scheduling.target_ms);
  return options;
}

// Errors: those of the model file, where there is one.
Result<UrlTargetOptions> ServerFrom(const ServeFlags& flags) {
  UrlTargetOptions options{.url = flags.target.url, .api_key = flags.target.api_key};
  if (!flags.engine.model.empty()) {
    KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Open(flags.engine.model));
    KVERN_ASSIGN_OR_RETURN(options.tokenizer, model::LoadTokenizer(gguf));
  }
  return options;
}

Status CheckFlags(const ServeFlags& flags) {
  if (!flags.report.compare.empty() && flags.report.compare != "off") {
    return FlagError(fmt::format("--compare: '{}' is not off", flags.report.compare));
  }
  if (flags.report.chart != "latency" && flags.report.chart != "kv") {
    return FlagError(fmt::format("--chart: '{}' is not latency or kv", flags.report.chart));
  }
  if (flags.load.concurrency == size_t{0}) return FlagError("--concurrency: give 1 or more");
  if (flags.load.concurrency && flags.load.rate) {
    return FlagError(
        "--concurrency and --rate: requests come when one ends, or at a rate: give one");
  }
  if (flags.load.duration_s && !(*flags.load.duration_s > 0)) {
    return FlagError("--duration: give more than 0 seconds");
  }
  return {};
}

std::optional<double> ToUs(std::optional<double> ms) {
  return ms ? std::optional(1000 * *ms) : std::nullopt;
}

Status BenchServe(const ServeFlags& flags) {
  KVERN_RETURN_IF_ERROR(CheckFlags(flags));
  KVERN_ASSIGN_OR_RETURN(const WorkloadRow* const row, FindWorkload(flags.workload));
  KVERN_ASSIGN_OR_RETURN(const Workload workload, WorkloadFrom(flags, *row));
  ServeSettings settings{.workload = flags.workload,
                         .engine = {},
                         .drive = {},
                         .level = {.ttft_us = ToUs(flags.report.slo_ttft_ms),
                                   .tpot_us = ToUs(flags.report.slo_tpot_ms)},
                         .seed = flags.load.seed,
                         .warm = flags.load.warm,
                         .compare_off = !flags.report.compare.empty(),
                         .check = flags.report.check,
                         .json = flags.report.json,
                         .svg_file = flags.report.svg,
                         .draws_kv = flags.report.chart == "kv",
                         .prompts_file = flags.report.prompts};
  if (flags.target.url.empty()) {
    KVERN_ASSIGN_OR_RETURN(settings.engine, EngineFrom(flags, workload));
  } else {
    KVERN_ASSIGN_OR_RETURN(settings.server, ServerFrom(flags));
  }
  settings.drive.concurrency = flags.load.concurrency;
  if (flags.load.duration_s) {
    settings.drive.duration_us = static_cast<int64_t>(1e6 * *flags.load.duration_s);
  }
  return row->measure(settings, workload);
}

std::string WorkloadsHelp() {
  std::string help = "What is served:";
  for (const WorkloadRow& row : ServeWorkloads()) {
    help += fmt::format("\n{}: {}", row.name, row.help);
  }
  return help;
}

void AddLoadFlags(CLI::App& app, ServeFlags& flags) {
  for (const ShapeField& field : kShapeFields) {
    app.add_option(field.flag, flags.shape.*field.given, field.help);
  }
  LoadFlags& load = flags.load;
  app.add_option("--trace", load.trace, "File of the workload trace: CSV or JSON lines");
  app.add_option("--scale", load.scale,
                 "Lengths of a trace times this (default: so that the longest fits)");
  app.add_option("--skip", load.skip, "Requests of the plan that another run has sent");
  app.add_option("--rate", load.rate,
                 "Requests a second that arrive, on average (default: as the workload says)");
  app.add_option("--concurrency", load.concurrency,
                 "Requests that are out at most; the next is sent when one ends");
  app.add_option("--duration", load.duration_s, "Seconds after which none is sent");
  app.add_option("--seed", load.seed, "Of texts and arrivals")->capture_default_str();
  app.add_flag("--warm", load.warm, "Compute what requests share before the measurement");
}

void AddSchedulingFlags(CLI::App& app, SchedulingFlags& flags) {
  app.add_option("--kv-tokens", flags.kv_tokens,
                 "Room of the KV cache (default: all requests at once, at most 98304)");
  app.add_option("--max-running", flags.scheduler.max_running, "Sequences computed at once")
      ->capture_default_str();
  app.add_option("--max-waiting", flags.scheduler.max_waiting,
                 "Requests that wait; beyond it they are refused")
      ->capture_default_str();
  app.add_option("--target-token-ms", flags.target_ms,
                 "Prefill leaves the time between tokens below this; 0: -b alone counts")
      ->capture_default_str();
  std::string names;
  for (const auto* policy : engine::SchedulingPolicies()) {
    names.append(names.empty() ? "" : ", ").append(policy->name);
  }
  app.add_option("--policy", flags.scheduler.policy, "Who is next: " + names)
      ->capture_default_str();
  app.add_option("--eviction", flags.eviction, "What leaves a full cache first")
      ->capture_default_str();
  names.clear();
  for (const auto& row : engine::Proposers()) {
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  app.add_option("--speculation", flags.speculation.proposer, "Who drafts tokens: " + names)
      ->capture_default_str();
  app.add_option("--draft-max", flags.speculation.max_draft, "Tokens drafted per step")
      ->capture_default_str();
  app.add_option("--model-draft", flags.speculation.draft_model, "Model file of the draft");
}

// After those of the engine: they say what a running server has decided already.
void AddTargetFlags(CLI::App& app, TargetFlags& flags) {
  CLI::Option* const url =
      app.add_option("--url", flags.url,
                     "A running server instead of an engine in this process: http://HOST:PORT");
  for (const char* const name : kEngineFlags) url->excludes(app.get_option(name));
  app.add_option("--api-key", flags.api_key, "Of the server")->needs(url);
}

void AddReportFlags(CLI::App& app, ReportFlags& flags) {
  app.add_option("--slo-ttft", flags.slo_ttft_ms,
                 "Milliseconds until the first token, for goodput");
  app.add_option("--slo-tpot", flags.slo_tpot_ms, "Milliseconds between tokens, for goodput");
  app.add_option("--compare", flags.compare, "off: the same again with the prefix cache off");
  app.add_flag("--check", flags.check,
               "Ask for a sample of the answers again, alone and without the cache");
  app.add_flag("--json", flags.json, "Print JSON");
  app.add_option("--svg", flags.svg, "SVG file for a chart");
  app.add_option("--chart", flags.chart, "What it shows: latency or kv")->capture_default_str();
  app.add_option(
      "--prompts", flags.prompts,
      "File for the plan: prompts as tokens and who waits for whom, a JSON object a line");
}

}  // namespace

Action DeclareBenchServe(CLI::App& app) {
  const auto flags = std::make_shared<ServeFlags>();
  app.add_option("workload", flags->workload, WorkloadsHelp())->capture_default_str();
  app.add_option("-m,--model", flags->engine.model, "Model file (default: the fetched model)");
  app.add_option("-c,--ctx-size", flags->engine.context,
                 "Context in tokens (default: the longest request; of a trace, 4096)");
  app.add_option("-t,--threads", flags->engine.threads, "Threads (default: one per core)");
  AddComputeFlags(app, flags->engine);
  AddLoadFlags(app, *flags);
  AddSchedulingFlags(app, flags->scheduling);
  AddTargetFlags(app, flags->target);
  AddReportFlags(app, flags->report);
  return [flags] { return BenchServe(*flags); };
}

}  // namespace kvern::cli
