// How `kvern bench serve` says what it measured: for people, for programs and as charts. Pure
// functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/serve_mixed_prefill.h"
#include "cli/serve_statistics.h"

namespace kvern::cli {

// One measured run and what was made of it.
struct ServeReport {
  std::string_view workload;
  std::string description;
  std::string server = {};  // empty: an engine in this process
  ServiceLevel level;
  ServeSummary summary;
  Verdict verdict;
};

std::string ToText(const ServeReport& report);
nlohmann::ordered_json ToJson(const ServeReport& report);

// A run of mixed-prefill under one setting, such as "512 tokens a step".
struct MixedPrefillRow {
  std::string setting;
  int64_t target_us = 0;  // between tokens; 0: none
  MixedPrefillResult result;
};

// One line of the table, and the line that heads it.
std::string MixedPrefillHeader();
std::string ToText(const MixedPrefillRow& row);
nlohmann::ordered_json ToJson(const MixedPrefillRow& row);

// KV memory in its four states over time, as SVG.
std::string DrawKvStates(const ServeRun& run, const std::string& title);

// Share of requests (TTFT) and of tokens (time between them) that took no longer, as SVG.
std::string DrawLatencies(const ServeRun& run, const std::string& title);

}  // namespace kvern::cli
