#include "cli/serve_table.h"

namespace kvern::cli {
namespace {

constexpr WorkloadRow kWorkloads[] = {
    {.name = "shared-prefix",
     .help = "requests with one prefix and a tail of their own",
     .defaults = {.requests = 32, .prefix = 2048, .tail = 64, .new_tokens = 64},
     .plan = PlanSharedPrefix,
     .measure = MeasureWorkload},
    {.name = "chat",
     .help = "sessions of several turns under one system prompt",
     .defaults =
         {.requests = 8, .turns = 4, .prefix = 256, .tail = 48, .new_tokens = 48, .think_ms = 200},
     .plan = PlanChat,
     .measure = MeasureWorkload},
    {.name = "agents",
     .help = "agents whose sub-agents go on from one history and report to it",
     .defaults =
         {.requests = 2, .turns = 3, .branches = 4, .prefix = 1024, .tail = 64, .new_tokens = 32},
     .plan = PlanAgents,
     .measure = MeasureWorkload},
    {.name = "documents",
     .help = "questions about long documents, in turn about each",
     .defaults = {.requests = 4, .turns = 4, .prefix = 1536, .tail = 32, .new_tokens = 32},
     .plan = PlanDocuments,
     .measure = MeasureWorkload},
    {.name = "mixed-prefill",
     .help = "a long prompt that comes while streams decode",
     .defaults = {.requests = 4, .prefix = 512, .tail = 128, .prompt = 7680},
     .plan = PlanMixedPrefill,
     .measure = MeasureMixedPrefill},
    {.name = "trace",
     .help = "lengths, arrivals and shared text of a recorded trace (--trace)",
     .defaults = {.requests = 64, .turns = 8, .think_ms = 1000},
     .plan = PlanTrace,
     .measure = MeasureWorkload},
};

}  // namespace

std::span<const WorkloadRow> ServeWorkloads() { return kWorkloads; }

Result<const WorkloadRow*> FindWorkload(const std::string& name) {
  std::string names;
  for (const WorkloadRow& row : kWorkloads) {
    if (row.name == name) return &row;
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "unknown workload '{}': use one of {}", name, names);
}

}  // namespace kvern::cli
