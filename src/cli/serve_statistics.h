// What a run's records add up to. Pure functions; times are in microseconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve_driver.h"
#include "engine/verdict.h"

namespace kvern::cli {

using engine::Bound;
using engine::OverheadShare;
using engine::Verdict;

// By nearest rank: each is a value that was measured. All are 0 where there is none.
struct Percentiles {
  size_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};

Percentiles PercentilesOf(std::vector<double> values);

// The value that a share `p` of the values does not exceed. REQUIRES: sorted, not empty.
double NearestRank(const std::vector<double>& sorted, double p);

// What a request must keep to count as good.
struct ServiceLevel {
  std::optional<double> ttft_us = {};
  std::optional<double> tpot_us = {};

  bool is_given() const { return ttft_us || tpot_us; }
};

struct ServeSummary : engine::Load {
  size_t num_done = 0;
  size_t num_ended = 0;  // as planned
  size_t num_refused = 0;
  size_t num_failed = 0;
  size_t num_not_sent = 0;
  size_t num_good = 0;                     // of those done, within the service level
  std::map<std::string, size_t> failures;  // refused and failed ones, where the target says why
  double seconds = 0;

  Percentiles ttft_us;   // from when it was due until its first token
  Percentiles tpot_us;   // of a request: between tokens after the first, on average
  Percentiles itl_us;    // each time between two chunks of tokens
  Percentiles e2e_us;    // until its end
  Percentiles queue_us;  // until its first step

  size_t prompt_tokens = 0;
  size_t output_tokens = 0;
  std::optional<size_t> cached_tokens;  // of prompts, as replies say
  double output_rate() const { return static_cast<double>(output_tokens) / seconds; }
  double total_rate() const { return static_cast<double>(prompt_tokens + output_tokens) / seconds; }
  double good_rate() const { return static_cast<double>(num_good) / seconds; }

  EngineView view = EngineView::kAll;  // what is known of the rest
  kv::StateCounts mean_bytes;
  size_t peak_active_bytes = 0;
  size_t peak_blocks = 0;  // held by one request, shared ones included
};

ServeSummary Summarize(const ServeRun& run, const ServiceLevel& level);

}  // namespace kvern::cli
