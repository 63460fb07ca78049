#include "cli/serve_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace kvern::cli {
namespace {

struct Samples {
  std::vector<double> ttft_us, tpot_us, itl_us, e2e_us, queue_us;
};

std::optional<double> TpotOf(const RequestRecord& record) {
  if (record.tokens.size() < 2 || record.chunk_us.empty()) return std::nullopt;
  const double span_us = static_cast<double>(record.chunk_us.back() - record.chunk_us.front());
  return span_us / static_cast<double>(record.tokens.size() - 1);
}

void AddTimes(const RequestRecord& record, Samples& samples) {
  const auto since_due = [&record](int64_t time_us) {
    return static_cast<double>(time_us - record.due_us);
  };
  if (record.first_us) samples.ttft_us.push_back(since_due(*record.first_us));
  if (const auto tpot_us = TpotOf(record)) samples.tpot_us.push_back(*tpot_us);
  for (size_t i = 1; i < record.chunk_us.size(); ++i) {
    samples.itl_us.push_back(static_cast<double>(record.chunk_us[i] - record.chunk_us[i - 1]));
  }
  if (record.outcome == Outcome::kDone) samples.e2e_us.push_back(since_due(record.end_us));
  if (record.report.queue_us) {
    samples.queue_us.push_back(static_cast<double>(*record.report.queue_us));
  }
}

bool IsGood(const RequestRecord& record, const ServiceLevel& level) {
  if (record.outcome != Outcome::kDone || !record.first_us) return false;
  if (level.ttft_us && static_cast<double>(*record.first_us - record.due_us) > *level.ttft_us) {
    return false;
  }
  return !level.tpot_us || TpotOf(record).value_or(0) <= *level.tpot_us;
}

void Count(const RequestRecord& record, ServeSummary& summary) {
  switch (record.outcome) {
    case Outcome::kDone:
      ++summary.num_done;
      break;
    case Outcome::kEnded:
      ++summary.num_ended;
      break;
    case Outcome::kRefused:
      ++summary.num_refused;
      break;
    case Outcome::kFailed:
      ++summary.num_failed;
      break;
    case Outcome::kNotSent:
      ++summary.num_not_sent;
      break;
  }
}

// Samples come at even times, near enough, for their mean to be one over time.
void AddSamples(const std::vector<EngineSample>& samples, ServeSummary& summary) {
  if (samples.empty()) return;
  double active = 0, cached = 0, reserved = 0, free = 0, running = 0;
  for (const EngineSample& sample : samples) {
    active += static_cast<double>(sample.bytes.active);
    cached += static_cast<double>(sample.bytes.cached);
    reserved += static_cast<double>(sample.bytes.reserved);
    free += static_cast<double>(sample.bytes.free);
    running += static_cast<double>(sample.running);
    summary.peak_active_bytes = std::max(summary.peak_active_bytes, sample.bytes.active);
    summary.peak_running = std::max(summary.peak_running, sample.running);
    if (sample.running == 0) continue;
    const double held = static_cast<double>(sample.bytes.active + sample.bytes.reserved);
    const double wanted = held * static_cast<double>(sample.running + sample.waiting) /
                          static_cast<double>(sample.running);
    summary.peak_wanted_bytes = std::max(summary.peak_wanted_bytes, static_cast<size_t>(wanted));
  }
  const double count = static_cast<double>(samples.size());
  const auto mean = [count](double sum) { return static_cast<size_t>(std::llround(sum / count)); };
  summary.mean_bytes = {.active = mean(active),
                        .cached = mean(cached),
                        .reserved = mean(reserved),
                        .free = mean(free)};
  summary.mean_running = running / count;
}

void Subtract(kv::PromptSplit& split, const kv::PromptSplit& before) {
  split.ram -= before.ram;
  split.tier -= before.tier;
  split.in_flight -= before.in_flight;
  split.partial -= before.partial;
  for (size_t i = 0; i < split.miss.size(); ++i) split.miss[i] -= before.miss[i];
}

}  // namespace

double NearestRank(const std::vector<double>& sorted, double p) {
  CHECK(!sorted.empty());
  const double rank = std::ceil(p * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {.count = values.size(),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) /
                  static_cast<double>(values.size()),
          .p50 = NearestRank(values, 0.5),
          .p90 = NearestRank(values, 0.9),
          .p95 = NearestRank(values, 0.95),
          .p99 = NearestRank(values, 0.99),
          .max = values.back()};
}

ServeSummary Summarize(const ServeRun& run, const ServiceLevel& level) {
  ServeSummary summary;
  Samples samples;
  for (const RequestRecord& record : run.records) {
    Count(record, summary);
    AddTimes(record, samples);
    if (IsGood(record, level)) ++summary.num_good;
    if (record.first_us) summary.prompt_tokens += record.prompt_tokens;
    summary.output_tokens += record.tokens.size();
    summary.peak_blocks = std::max(summary.peak_blocks, record.report.blocks_peak);
  }
  summary.seconds = static_cast<double>(std::max<int64_t>(run.wall_us, 1)) / 1e6;
  summary.ttft_us = PercentilesOf(std::move(samples.ttft_us));
  summary.tpot_us = PercentilesOf(std::move(samples.tpot_us));
  summary.itl_us = PercentilesOf(std::move(samples.itl_us));
  summary.e2e_us = PercentilesOf(std::move(samples.e2e_us));
  summary.queue_us = PercentilesOf(std::move(samples.queue_us));
  summary.engine = Since(run.before, run.after);
  AddSamples(run.samples, summary);
  summary.peak_active_bytes = std::max(summary.peak_active_bytes, run.after.kv.peak_bytes.active);
  return summary;
}

double OverheadShare(const EngineStats& stats) {
  const double overhead = static_cast<double>(stats.schedule_us + stats.commit_us);
  const double all = overhead + static_cast<double>(stats.execute_us);
  return all > 0 ? overhead / all : 0;
}

EngineStats Since(const EngineStats& before, const EngineStats& after) {
  EngineStats since = after;
  for (uint64_t EngineStats::*const counter :
       {&EngineStats::requests, &EngineStats::refused, &EngineStats::finished,
        &EngineStats::cancelled, &EngineStats::failed, &EngineStats::steps,
        &EngineStats::steps_kv_bound, &EngineStats::steps_queue_bound,
        &EngineStats::prefilled_tokens, &EngineStats::decoded_tokens, &EngineStats::drafted_tokens,
        &EngineStats::accepted_tokens, &EngineStats::preemptions, &EngineStats::self_checks,
        &EngineStats::self_check_failures}) {
    since.*counter -= before.*counter;
  }
  for (int64_t EngineStats::*const time :
       {&EngineStats::kv_bound_us, &EngineStats::queue_bound_us, &EngineStats::compute_bound_us,
        &EngineStats::schedule_us, &EngineStats::execute_us, &EngineStats::commit_us}) {
    since.*time -= before.*time;
  }
  Subtract(since.kv.prompts, before.kv.prompts);
  Subtract(since.kv.resumes, before.kv.resumes);
  for (size_t i = 0; i < since.kv.evicted_blocks.size(); ++i) {
    since.kv.evicted_blocks[i] -= before.kv.evicted_blocks[i];
  }
  since.kv.num_prompts -= before.kv.num_prompts;
  since.kv.num_resumes -= before.kv.num_resumes;
  since.kv.blocks_published -= before.kv.blocks_published;
  since.kv.blocks_merged -= before.kv.blocks_merged;
  since.kv.rows_copied -= before.kv.rows_copied;
  since.kv.one_answer_violations -= before.kv.one_answer_violations;
  return since;
}

}  // namespace kvern::cli
