// Measures a workload on engines of one model, or on a server: opens them, runs the plan, and
// prints what came of it to standard output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/serve_driver.h"
#include "cli/serve_statistics.h"
#include "cli/serve_url_target.h"
#include "cli/serve_workload.h"
#include "kvern/engine.h"

namespace kvern::cli {

struct ServeSettings {
  std::string workload;  // its name
  EngineOptions engine;
  std::optional<UrlTargetOptions> server = {};  // instead of an engine
  DriveOptions drive;
  ServiceLevel level;
  uint64_t seed = 1;
  bool warm = false;         // what requests share is computed before
  bool compare_off = false;  // the same again with the prefix cache off
  bool check = false;        // a sample again, alone and without the cache
  bool json = false;
  std::string svg_file = {};      // empty: none
  bool draws_kv = false;          // KV memory over time instead of latencies
  std::string prompts_file = {};  // empty: none
};

// Errors: the target's, and kCorrupt if a checked answer differs.
Status MeasureWorkload(const ServeSettings& settings, const Workload& workload);

// mixed-prefill under three settings: a fixed budget, and two targets for the time between tokens.
// A server has one setting: its own.
Status MeasureMixedPrefill(const ServeSettings& settings, const Workload& workload);

}  // namespace kvern::cli
