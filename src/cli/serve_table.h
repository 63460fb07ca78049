// The workloads of `kvern bench serve`, one row each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/serve_measure.h"
#include "cli/serve_workload.h"

namespace kvern::cli {

struct WorkloadRow {
  std::string_view name;
  std::string_view help;   // one line
  WorkloadShape defaults;  // zero: the workload has no such thing
  Result<Workload> (*plan)(const WorkloadOptions& options);
  // Runs the plan and prints what came of it. Errors: the engine's, and a check that fails.
  Status (*measure)(const ServeSettings& settings, const Workload& workload);
};

std::span<const WorkloadRow> ServeWorkloads();

// Errors: kInvalidArgument, naming those that exist.
Result<const WorkloadRow*> FindWorkload(const std::string& name);

}  // namespace kvern::cli
