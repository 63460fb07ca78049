#include "cli/serve_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/reply_stats.h"
#include "cli/svg_chart.h"

namespace kvern::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMsPerUs = 1e-3;
constexpr size_t kMaxChartPoints = 400;

double Share(size_t part, size_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string Ms(double us) {
  const double ms = us * kMsPerUs;
  return fmt::format("{:.{}f}", ms, ms < 100 ? 2 : 0);
}

std::string TimesLine(std::string_view name, const Percentiles& times) {
  if (times.count == 0) return "";
  return fmt::format("  {:<12}{:>10}{:>10}{:>10}{:>10}{:>10}\n", name, Ms(times.p50), Ms(times.p90),
                     Ms(times.p95), Ms(times.p99), Ms(times.max));
}

std::string RequestsText(const ServeReport& report) {
  const ServeSummary& summary = report.summary;
  std::string text = fmt::format("requests      {} done", summary.num_done);
  if (summary.num_ended > 0) text += fmt::format(", {} ended as planned", summary.num_ended);
  text += fmt::format(", {} failed, {} refused", summary.num_failed, summary.num_refused);
  if (summary.num_not_sent > 0) text += fmt::format(", {} not sent", summary.num_not_sent);
  text += fmt::format(" in {:.2f} s\n", summary.seconds);
  if (!summary.failures.empty()) {
    std::string kinds;
    for (const auto& [kind, count] : summary.failures) {
      kinds += fmt::format("{}{} × {}", kinds.empty() ? "" : ", ", kind, count);
    }
    text += fmt::format("failures      {}\n", kinds);
  }
  text += fmt::format("tokens        {:.1f} t/s generated ({}), {:.1f} t/s with prompts ({})\n",
                      summary.output_rate(), summary.output_tokens, summary.total_rate(),
                      summary.prompt_tokens);
  if (report.level.is_given()) {
    text += fmt::format("goodput       {:.2f} requests/s within the service level ({} of {})\n",
                        summary.good_rate(), summary.num_good, summary.num_done);
  }
  return text;
}

std::string TimesText(const ServeSummary& summary) {
  return fmt::format("\n  {:<12}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "p50", "p90", "p95", "p99",
                     "max") +
         TimesLine("TTFT", summary.ttft_us) + TimesLine("TPOT", summary.tpot_us) +
         TimesLine("ITL", summary.itl_us) + TimesLine("E2E", summary.e2e_us) +
         TimesLine("queue", summary.queue_us);
}

void AddPart(std::string& text, std::string_view name, size_t tokens) {
  if (tokens > 0) text += fmt::format(", {} {}", tokens, name);
}

std::string PromptsText(const EngineStats& stats) {
  const kv::PromptSplit& split = stats.kv.prompts;
  const size_t all = split.hit() + split.missed();
  std::string hit =
      fmt::format("\nprompts       {} tokens: {:.1f} % found", all, 100 * Share(split.hit(), all));
  AddPart(hit, "in RAM", split.ram);
  AddPart(hit, "on a tier", split.tier);
  AddPart(hit, "awaited", split.in_flight);
  AddPart(hit, "of a block", split.partial);
  std::string miss = fmt::format("\n  missed      {} tokens", split.missed());
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
    AddPart(miss, kv::ToString(static_cast<kv::MissReason>(i)), split.miss[i]);
  }
  return hit + miss + fmt::format("\n  computed    {} tokens\n", stats.prefilled_tokens);
}

// As replies say, where nothing more is known.
std::string CachedText(const ServeSummary& summary) {
  if (!summary.cached_tokens) return "";
  return fmt::format("\nprompts       {} tokens: {:.1f} % found\n", summary.prompt_tokens,
                     100 * Share(*summary.cached_tokens, summary.prompt_tokens));
}

std::string MemoryText(const ServeSummary& summary) {
  const kv::KvStats& kv = summary.engine.kv;
  const kv::StateCounts& mean = summary.mean_bytes;
  std::string text = fmt::format("\n  {:<12}{:>12}{:>12}{:>12}{:>12}\n", "KV memory", "active",
                                 "cached", "reserved", "free");
  text += fmt::format("  {:<12}{:>12}{:>12}{:>12}{:>12}\n", "mean", FormatBytes(mean.active),
                      FormatBytes(mean.cached), FormatBytes(mean.reserved), FormatBytes(mean.free));
  text += fmt::format("  {:<12}{:>12}{:>12}{:>12}{:>12}\n", "peak",
                      FormatBytes(summary.peak_active_bytes), FormatBytes(kv.peak_bytes.cached),
                      FormatBytes(kv.peak_bytes.reserved), FormatBytes(kv.peak_bytes.free));
  text += fmt::format("  {} in all; {} of index", FormatBytes(kv.budget_bytes),
                      FormatBytes(kv.index_bytes));
  if (summary.view == EngineView::kAll) {
    text += fmt::format("; a request held {} blocks at most", summary.peak_blocks);
  }
  return text + "\n";
}

std::string EngineText(const ServeSummary& summary) {
  const EngineStats& stats = summary.engine;
  std::string text = fmt::format("\nsequences     {:.1f} at once, {} at most, {} preemptions\n",
                                 summary.mean_running, summary.peak_running, stats.preemptions);
  text += fmt::format("steps         {}, {:.2f} % of their CPU time for scheduling and commit\n",
                      stats.steps, 100 * OverheadShare(stats));
  if (stats.drafted_tokens > 0) {
    text += fmt::format("speculation   {} of {} drafted tokens accepted, {:.1f} %\n",
                        stats.accepted_tokens, stats.drafted_tokens,
                        100 * Share(stats.accepted_tokens, stats.drafted_tokens));
  }
  text += fmt::format("checks        {} full hits computed again, {} differed; ", stats.self_checks,
                      stats.self_check_failures);
  if (summary.view == EngineView::kAll) {
    text += fmt::format("{} blocks merged, ", stats.kv.blocks_merged);
  }
  return text + fmt::format("{} violations\n", stats.kv.one_answer_violations);
}

std::string VerdictText(const Verdict& verdict) {
  std::string text = fmt::format(
      "\nverdict       {}: somebody waited for KV memory in {:.1f} % of the steps, for a turn in "
      "{:.1f} %; {:.1f} tokens a step\n",
      ToString(verdict.bound), 100 * verdict.kv_share, 100 * verdict.queue_share,
      verdict.tokens_per_step);
  for (const std::string& lever : verdict.levers) text += "  would help: " + lever + "\n";
  return text;
}

ordered_json TimesJson(const Percentiles& times) {
  return {{"count", times.count}, {"mean", times.mean}, {"p50", times.p50}, {"p90", times.p90},
          {"p95", times.p95},     {"p99", times.p99},   {"max", times.max}};
}

ordered_json StatesJson(const kv::StateCounts& states) {
  return {{"active", states.active},
          {"cached", states.cached},
          {"reserved", states.reserved},
          {"free", states.free}};
}

ordered_json SplitJson(const kv::PromptSplit& split) {
  ordered_json miss = ordered_json::object();
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
    miss[std::string(kv::ToString(static_cast<kv::MissReason>(i)))] = split.miss[i];
  }
  return {{"ram", split.ram},
          {"tier", split.tier},
          {"in_flight", split.in_flight},
          {"partial", split.partial},
          {"miss", std::move(miss)}};
}

ordered_json MemoryJson(const ServeSummary& summary) {
  const kv::KvStats& kv = summary.engine.kv;
  kv::StateCounts peak = kv.peak_bytes;
  peak.active = summary.peak_active_bytes;
  ordered_json json = {{"budget_bytes", kv.budget_bytes},
                       {"index_bytes", kv.index_bytes},
                       {"mean_bytes", StatesJson(summary.mean_bytes)},
                       {"peak_bytes", StatesJson(peak)},
                       {"peak_wanted_bytes", summary.peak_wanted_bytes},
                       {"one_answer_violations", kv.one_answer_violations}};
  if (summary.view == EngineView::kAll) {
    json["peak_blocks_of_a_request"] = summary.peak_blocks;
    json["blocks_merged"] = kv.blocks_merged;
    json["rows_copied"] = kv.rows_copied;
  }
  return json;
}

ordered_json EngineJson(const ServeSummary& summary) {
  const EngineStats& stats = summary.engine;
  return {{"steps", stats.steps},
          {"prefilled_tokens", stats.prefilled_tokens},
          {"decoded_tokens", stats.decoded_tokens},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_tokens", stats.accepted_tokens},
          {"preemptions", stats.preemptions},
          {"self_checks", stats.self_checks},
          {"self_check_failures", stats.self_check_failures},
          {"schedule_us", stats.schedule_us},
          {"execute_us", stats.execute_us},
          {"commit_us", stats.commit_us},
          {"overhead_share", OverheadShare(stats)},
          {"mean_running", summary.mean_running},
          {"peak_running", summary.peak_running}};
}

// At most kMaxChartPoints of `count` indices, the last among them.
std::vector<size_t> Thinned(size_t count) {
  std::vector<size_t> indices;
  const size_t step = std::max<size_t>(1, count / kMaxChartPoints);
  for (size_t i = 0; i < count; i += step) indices.push_back(i);
  if (count > 0 && indices.back() != count - 1) indices.push_back(count - 1);
  return indices;
}

ChartLine Distribution(std::string name, std::vector<double> values_us) {
  std::ranges::sort(values_us);
  ChartLine line{std::move(name), {}};
  for (const size_t i : Thinned(values_us.size())) {
    line.points.push_back({values_us[i] * kMsPerUs, 100 * Share(i + 1, values_us.size())});
  }
  return line;
}

}  // namespace

std::string ToText(const ServeReport& report) {
  std::string text = fmt::format("{}: {}\n\n", report.workload, report.description);
  if (!report.server.empty()) text += fmt::format("server        {}\n", report.server);
  text += RequestsText(report) + TimesText(report.summary);
  if (report.summary.view == EngineView::kNothing) return text + CachedText(report.summary);
  return text + PromptsText(report.summary.engine) + MemoryText(report.summary) +
         EngineText(report.summary) + VerdictText(report.verdict);
}

ordered_json ToJson(const ServeReport& report) {
  const ServeSummary& summary = report.summary;
  ordered_json json = {{"workload", report.workload},
                       {"description", report.description},
                       {"seconds", summary.seconds},
                       {"requests",
                        {{"done", summary.num_done},
                         {"ended", summary.num_ended},
                         {"failed", summary.num_failed},
                         {"refused", summary.num_refused},
                         {"not_sent", summary.num_not_sent}}},
                       {"prompt_tokens", summary.prompt_tokens},
                       {"output_tokens", summary.output_tokens},
                       {"output_tokens_per_second", summary.output_rate()},
                       {"total_tokens_per_second", summary.total_rate()}};
  if (report.level.is_given()) {
    json["good_requests"] = summary.num_good;
    json["good_requests_per_second"] = summary.good_rate();
  }
  json["ttft_us"] = TimesJson(summary.ttft_us);
  json["tpot_us"] = TimesJson(summary.tpot_us);
  json["itl_us"] = TimesJson(summary.itl_us);
  json["e2e_us"] = TimesJson(summary.e2e_us);
  if (!report.server.empty()) {
    json["server"] = report.server;
    json["failures"] = summary.failures;
  }
  if (summary.cached_tokens) json["cached_tokens"] = *summary.cached_tokens;
  if (summary.view == EngineView::kNothing) return json;
  json["prompts"] = SplitJson(summary.engine.kv.prompts);
  if (summary.view == EngineView::kAll) {
    json["queue_us"] = TimesJson(summary.queue_us);
    json["resumes"] = SplitJson(summary.engine.kv.resumes);
  }
  json["kv"] = MemoryJson(summary);
  json["engine"] = EngineJson(summary);
  json["verdict"] = {{"bound", ToString(report.verdict.bound)},
                     {"kv_bound_share", report.verdict.kv_share},
                     {"queue_bound_share", report.verdict.queue_share},
                     {"tokens_per_step", report.verdict.tokens_per_step},
                     {"levers", report.verdict.levers}};
  return json;
}

std::string MixedPrefillHeader() {
  return fmt::format("  {:<24}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}{:>10}{:>8}\n", "setting",
                     "alone p99", "target", "mixed p50", "mixed p99", "mixed max", "alone t/s",
                     "mixed t/s", "share");
}

std::string ToText(const MixedPrefillRow& row) {
  const MixedPrefillResult& result = row.result;
  const double share = result.alone_rate > 0 ? 100 * result.mixed_rate / result.alone_rate : 0;
  const std::string target =
      row.target_us > 0 ? Ms(static_cast<double>(row.target_us)) : std::string("none");
  return fmt::format("  {:<24}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10.1f}{:>10.1f}{:>6.1f} %\n",
                     row.setting, Ms(result.undisturbed_us.p99), target,
                     Ms(result.disturbed_us.p50), Ms(result.disturbed_us.p99),
                     Ms(result.disturbed_us.max), result.alone_rate, result.mixed_rate, share);
}

ordered_json ToJson(const MixedPrefillRow& row) {
  return {{"setting", row.setting},
          {"target_token_us", row.target_us},
          {"undisturbed_itl_us", TimesJson(row.result.undisturbed_us)},
          {"disturbed_itl_us", TimesJson(row.result.disturbed_us)},
          {"prefill_alone_tokens_per_second", row.result.alone_rate},
          {"prefill_mixed_tokens_per_second", row.result.mixed_rate}};
}

std::string DrawKvStates(const ServeRun& run, const std::string& title) {
  constexpr double kMebibyte = 1 << 20;
  LineChart chart{.title = title,
                  .x_label = "seconds",
                  .y_label = "KV memory, MiB",
                  .lines = {{"active", {}}, {"cached", {}}, {"reserved", {}}, {"free", {}}}};
  for (const size_t i : Thinned(run.samples.size())) {
    const EngineSample& sample = run.samples[i];
    const double seconds = static_cast<double>(sample.time_us) / 1e6;
    const size_t states[] = {sample.bytes.active, sample.bytes.cached, sample.bytes.reserved,
                             sample.bytes.free};
    for (size_t state = 0; state < std::size(states); ++state) {
      chart.lines[state].points.push_back(
          {seconds, static_cast<double>(states[state]) / kMebibyte});
    }
  }
  return RenderSvg(chart);
}

std::string DrawLatencies(const ServeRun& run, const std::string& title) {
  std::vector<double> ttft_us, itl_us;
  for (const RequestRecord& record : run.records) {
    if (record.first_us) ttft_us.push_back(static_cast<double>(*record.first_us - record.due_us));
    for (size_t i = 1; i < record.chunk_us.size(); ++i) {
      itl_us.push_back(static_cast<double>(record.chunk_us[i] - record.chunk_us[i - 1]));
    }
  }
  return RenderSvg({.title = title,
                    .x_label = "milliseconds",
                    .y_label = "% that took no longer",
                    .lines = {Distribution("time to first token", std::move(ttft_us)),
                              Distribution("between tokens", std::move(itl_us))}});
}

}  // namespace kvern::cli
