// kvern sim fragmentation: one trace of lengths under each strategy and one memory budget.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cli/bench_table.h"
#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/reply_stats.h"
#include "cli/svg_chart.h"
#include "sim/fragmentation.h"
#include "sim/length_trace.h"

namespace kvern::cli {
namespace {

constexpr std::string_view kSynthetic = "synthetic";
constexpr size_t kSyntheticRequests = 20000, kMaxRequests = 100'000'000;
constexpr size_t kMaxTokenBytes = size_t{1} << 30;
constexpr uint32_t kMaxBlockTokens = 65536;

struct FragmentationFlags {
  std::string trace{kSynthetic};
  std::optional<size_t> requests;
  uint64_t seed = 1;
  std::string budget = "24GiB";
  std::string token_bytes = "128KiB";
  uint32_t block_tokens = kBlockTokens;
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> step_ms;
  std::string fit = "first";
  bool json = false;
  std::string chart_file;
};

Result<sim::LengthTrace> TraceFromFlags(const FragmentationFlags& flags) {
  if (flags.requests && (*flags.requests == 0 || *flags.requests > kMaxRequests)) {
    return FlagError(
        fmt::format("--requests: {} is not from 1 to {}", *flags.requests, kMaxRequests));
  }
  if (flags.trace == kSynthetic) {
    return sim::MakeSyntheticTrace(flags.requests.value_or(kSyntheticRequests), flags.seed);
  }
  KVERN_ASSIGN_OR_RETURN(sim::LengthTrace trace, sim::ReadLengthTrace(flags.trace));
  if (flags.requests) trace.resize(std::min(trace.size(), *flags.requests));
  return trace;
}

Result<sim::FragmentationOptions> OptionsFromFlags(const FragmentationFlags& flags,
                                                   const sim::LengthTrace& trace) {
  sim::FragmentationOptions options;
  KVERN_ASSIGN_OR_RETURN(options.budget_bytes, ParseByteSize("--budget", flags.budget));
  KVERN_ASSIGN_OR_RETURN(options.token_bytes, ParseByteSize("--token-bytes", flags.token_bytes));
  if (options.token_bytes == 0 || options.token_bytes > kMaxTokenBytes) {
    return FlagError(fmt::format("--token-bytes: {} is not from 1 byte to {}", flags.token_bytes,
                                 FormatBytes(kMaxTokenBytes)));
  }
  if (flags.block_tokens == 0 || flags.block_tokens > kMaxBlockTokens) {
    return FlagError(
        fmt::format("--block-tokens: {} is not from 1 to {}", flags.block_tokens, kMaxBlockTokens));
  }
  options.block_tokens = flags.block_tokens;
  const size_t block_bytes = options.token_bytes * options.block_tokens;
  if (block_bytes % kv::kBlockAlignment != 0) {
    return FlagError(
        fmt::format("--token-bytes: {} make blocks of {} bytes, not a multiple of {}: round up",
                    flags.token_bytes, block_bytes, kv::kBlockAlignment));
  }
  const size_t num_blocks = options.budget_bytes / block_bytes;
  if (num_blocks == 0 || num_blocks > sim::kMaxBlocks) {
    return FlagError(fmt::format("--budget: {} are {} blocks of {} bytes, not from 1 to {}",
                                 flags.budget, num_blocks, block_bytes, sim::kMaxBlocks));
  }
  options.max_tokens = flags.max_tokens.value_or(sim::LongestRequest(trace));
  if (flags.step_ms == 0u) return FlagError("--step-ms: a step of 0 ms never ends: give 1 or more");
  options.step_ms = flags.step_ms;
  if (flags.fit != "first" && flags.fit != "best") {
    return FlagError(fmt::format("--fit: '{}' is not first or best", flags.fit));
  }
  options.fit = flags.fit == "first" ? kv::ArenaFit::kFirst : kv::ArenaFit::kBest;
  return options;
}

struct Row {
  std::string_view strategy;
  sim::FragmentationResult result;
};

// The simplest strategy first. One that keeps nothing between steps wastes nothing between steps.
Result<std::vector<Row>> ReplayAll(const sim::LengthTrace& trace,
                                   const sim::FragmentationOptions& options) {
  std::vector<Row> rows;
  for (const kv::Strategy& strategy : kv::Strategies()) {
    if (strategy.recomputes_history) continue;
    KVERN_ASSIGN_OR_RETURN(const auto result, sim::ReplayLengths(trace, strategy, options));
    rows.push_back({strategy.name, result});
  }
  std::reverse(rows.begin(), rows.end());
  return rows;
}

double WasteRatio(const sim::BudgetShares& bytes) {
  return bytes.used > 0 ? (bytes.internal + bytes.external) / bytes.used : 0;
}

nlohmann::ordered_json RecordOf(const Row& row) {
  const sim::FragmentationResult& result = row.result;
  return {{"allocator", row.strategy},
          {"mean_held", result.mean_held},
          {"peak_held", result.peak_held},
          {"used_bytes", result.mean_bytes.used},
          {"internal_bytes", result.mean_bytes.internal},
          {"external_bytes", result.mean_bytes.external},
          {"free_bytes", result.mean_bytes.free},
          {"waste_ratio", WasteRatio(result.mean_bytes)},
          {"peak_internal_bytes", result.peak_internal_bytes},
          {"peak_external_bytes", result.peak_external_bytes},
          {"mean_fragmentation", result.mean_fragmentation},
          {"bytes_copied", result.bytes_copied},
          {"refusals", result.num_refusals},
          {"refusals_by_holes", result.num_refusals_by_holes},
          {"waits", result.num_waits},
          {"preemptions", result.num_preemptions},
          {"tokens_recomputed", result.tokens_recomputed},
          {"steps", result.num_steps},
          {"completed", result.num_completed},
          {"too_long", result.num_too_long},
          {"never_fit", result.num_never_fit}};
}

void PrintRecords(const FragmentationFlags& flags, const sim::LengthTrace& trace,
                  const sim::FragmentationOptions& options, const std::vector<Row>& rows) {
  nlohmann::ordered_json document = {{"trace", flags.trace},
                                     {"requests", trace.size()},
                                     {"budget_bytes", options.budget_bytes},
                                     {"token_bytes", options.token_bytes},
                                     {"block_tokens", options.block_tokens},
                                     {"max_tokens", options.max_tokens},
                                     {"step_ms", nullptr},
                                     {"fit", flags.fit},
                                     {"allocators", nlohmann::ordered_json::array()}};
  if (options.step_ms) document["step_ms"] = *options.step_ms;
  if (flags.trace == kSynthetic) document["seed"] = flags.seed;
  for (const Row& row : rows) document["allocators"].push_back(RecordOf(row));
  PrintJson(document);
}

std::string Describe(const FragmentationFlags& flags, const sim::LengthTrace& trace,
                     const sim::FragmentationOptions& options) {
  uint64_t context = 0, generated = 0;
  for (const sim::LengthRequest& request : trace) {
    context += request.context_tokens;
    generated += request.generated_tokens;
  }
  const double num_requests = static_cast<double>(trace.size());
  return fmt::format(
      "{} requests of {}: {:.0f} tokens of context and {:.0f} generated on average\n"
      "{} of KV memory, {} a token, blocks of {} tokens, up to {} tokens a sequence\n"
      "{}\n\n",
      trace.size(), flags.trace, static_cast<double>(context) / num_requests,
      static_cast<double>(generated) / num_requests, FormatBytes(options.budget_bytes),
      FormatBytes(options.token_bytes), options.block_tokens, options.max_tokens,
      options.step_ms ? fmt::format("requests arrive in time, in steps of {} ms", *options.step_ms)
                      : "all requests wait from the start");
}

void PrintTable(const std::vector<Row>& rows) {
  BenchTable table(BenchFormat::kMarkdown,
                   {{.title = "allocator", .width = 9, .is_text = true},
                    {.title = "held", .width = 6},
                    {.title = "most", .width = 5},
                    {.title = "used", .width = 6},
                    {.title = "internal", .width = 8},
                    {.title = "external", .width = 8},
                    {.title = "free", .width = 6},
                    {.title = "waste/used", .width = 10},
                    {.title = "copied", .width = 10},
                    {.title = "waits", .width = 7},
                    {.title = "preempted", .width = 9},
                    {.title = "steps", .width = 7}},
                   PrintNow);
  for (const Row& row : rows) {
    const sim::FragmentationResult& result = row.result;
    const sim::BudgetShares& bytes = result.mean_bytes;
    const auto share = [&bytes](double part) {
      return fmt::format("{:.1f} %", 100 * part / bytes.Sum());
    };
    table.Add(
        std::vector<std::string>{std::string(row.strategy), fmt::format("{:.1f}", result.mean_held),
                                 std::to_string(result.peak_held), share(bytes.used),
                                 share(bytes.internal), share(bytes.external), share(bytes.free),
                                 fmt::format("{:.2f} %", 100 * WasteRatio(bytes)),
                                 FormatBytes(result.bytes_copied), std::to_string(result.num_waits),
                                 std::to_string(result.num_preemptions),
                                 std::to_string(result.num_steps)},
        {});
  }
  table.Finish();
  for (const auto& [strategy, result] : rows) {
    if (result.num_too_long + result.num_never_fit == 0) continue;
    fmt::print("{}: left out {} requests beyond --max-tokens and {} that can never fit\n", strategy,
               result.num_too_long, result.num_never_fit);
  }
}

std::string DrawShares(const sim::FragmentationOptions& options, const std::vector<Row>& rows) {
  constexpr double kGibibyte = 1 << 30;
  BarChart chart{
      .title = fmt::format("What {} of KV memory hold", FormatBytes(options.budget_bytes)),
      .x_label = "GiB, mean until the last admission",
      .parts = {"used by tokens", "internal waste", "external waste", "free"},
      .bars = {}};
  for (const auto& [strategy, result] : rows) {
    const sim::BudgetShares& bytes = result.mean_bytes;
    chart.bars.push_back(
        {std::string(strategy),
         fmt::format("{:.1f} sequences at once, {} copied, {} steps", result.mean_held,
                     FormatBytes(result.bytes_copied), result.num_steps),
         {bytes.used / kGibibyte, bytes.internal / kGibibyte, bytes.external / kGibibyte,
          bytes.free / kGibibyte}});
  }
  return RenderBarsSvg(chart);
}

Status SimFragmentation(const FragmentationFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const sim::LengthTrace trace, TraceFromFlags(flags));
  KVERN_ASSIGN_OR_RETURN(const auto options, OptionsFromFlags(flags, trace));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Row> rows, ReplayAll(trace, options));
  if (!flags.chart_file.empty()) {
    KVERN_RETURN_IF_ERROR(WriteTextFile(flags.chart_file, DrawShares(options, rows)));
  }
  if (flags.json) {
    PrintRecords(flags, trace, options, rows);
  } else {
    fmt::print("{}", Describe(flags, trace, options));
    PrintTable(rows);
  }
  return {};
}

}  // namespace

Action DeclareSimFragmentation(CLI::App& app) {
  const auto flags = std::make_shared<FragmentationFlags>();
  app.add_option("--trace", flags->trace, "CSV file of lengths, or synthetic")
      ->capture_default_str();
  app.add_option("--requests", flags->requests,
                 "The first so many of a file (default: all); of synthetic ones, 20000");
  app.add_option("--seed", flags->seed, "Of a synthetic trace")->capture_default_str();
  app.add_option("--budget", flags->budget, "KV memory, such as 512MiB or 24GiB")
      ->capture_default_str();
  app.add_option("--token-bytes", flags->token_bytes, "K and V of one token, all layers")
      ->capture_default_str();
  app.add_option("--block-tokens", flags->block_tokens, "Tokens of a block")->capture_default_str();
  app.add_option("--max-tokens", flags->max_tokens,
                 "What static reserves for each sequence (default: the longest request)");
  app.add_option("--step-ms", flags->step_ms,
                 "Let requests arrive in time, in steps of so many ms (default: all wait)");
  app.add_option("--fit", flags->fit, "Where contiguous regions go: the first hole or the best")
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print JSON");
  app.add_option("--chart", flags->chart_file, "SVG file for a chart of what the memory holds");
  return [flags] { return SimFragmentation(*flags); };
}

}  // namespace kvern::cli
