// trace: lengths, arrivals and shared text as they were recorded, scaled to what a context holds.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "cli/serve_workload.h"
#include "sim/request_trace.h"

namespace kvern::cli {
namespace {

// Texts that only one request has are numbered from here; those of blocks below.
constexpr uint64_t kPrivateTexts = uint64_t{1} << 63;
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// The first requests, at most so many of each session. Returns their indices.
std::vector<size_t> Select(const sim::RequestTrace& trace, const WorkloadShape& shape) {
  const size_t most = shape.requests > 0 ? shape.requests : kAll;
  std::vector<size_t> selected;
  std::unordered_map<uint32_t, uint32_t> turns;
  for (size_t i = 0; i < trace.requests.size() && selected.size() < most; ++i) {
    if (turns[trace.requests[i].session]++ < shape.turns) selected.push_back(i);
  }
  return selected;
}

class Planner {
 public:
  Planner(const sim::RequestTrace& trace, double scale, const WorkloadOptions& options)
      : trace_(trace), scale_(scale), options_(options) {}

  Workload Plan(const std::vector<size_t>& selected) {
    for (const size_t index : selected) Add(index);
    return std::move(workload_);
  }

 private:
  uint32_t Scaled(uint32_t tokens) const {
    return std::max(1u, static_cast<uint32_t>(tokens * scale_));
  }

  void Add(size_t index) {
    const sim::TraceRequest& traced = trace_.requests[index];
    const uint32_t prompt_tokens = Scaled(traced.prompt_tokens);
    PlannedRequest request{.new_tokens = Scaled(traced.new_tokens)};
    if (size_t{prompt_tokens} + request.new_tokens > options_.max_context) {
      ++workload_.num_left_out;
      return;
    }
    for (const size_t earlier : traced.after) {
      const auto planned = planned_.find(earlier);
      if (planned == planned_.end()) continue;
      request.after.push_back({planned->second, workload_.requests[planned->second].new_tokens});
    }
    const uint64_t longest_pause_us = uint64_t{options_.shape.think_ms} * 1000;
    request.delay_us = static_cast<int64_t>(
        request.after.empty() ? traced.arrival_us : std::min(traced.think_us, longest_pause_us));
    request.prompt = PromptOf(traced, prompt_tokens, index);
    planned_[index] = workload_.requests.size();
    workload_.requests.push_back(std::move(request));
  }

  PromptParts PromptOf(const sim::TraceRequest& traced, uint32_t prompt_tokens,
                       size_t index) const {
    PromptParts parts;
    uint32_t left = prompt_tokens;
    const uint32_t block_tokens = Scaled(trace_.block_tokens);
    for (const sim::BlockRun& run : traced.blocks) {
      for (uint32_t i = 0; i < run.count && left > 0; ++i) {
        const uint32_t tokens = std::min(left, block_tokens);
        parts.push_back(PromptPart::Text(run.first + i, tokens));
        left -= tokens;
      }
    }
    if (left > 0) parts.push_back(PromptPart::Text(kPrivateTexts | index, left));
    return parts;
  }

  const sim::RequestTrace& trace_;
  const double scale_;
  const WorkloadOptions& options_;
  Workload workload_;
  std::unordered_map<size_t, size_t> planned_;  // trace index → workload index
};

double ScaleThatFits(const sim::RequestTrace& trace, const std::vector<size_t>& selected,
                     uint32_t max_context) {
  uint64_t longest = 1;
  for (const size_t i : selected) {
    const sim::TraceRequest& request = trace.requests[i];
    longest = std::max(longest, uint64_t{request.prompt_tokens} + request.new_tokens);
  }
  return std::min(1.0, max_context / static_cast<double>(longest));
}

}  // namespace

Result<Workload> PlanTrace(const WorkloadOptions& options) {
  if (options.trace_file.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "--trace: the workload trace needs a file");
  }
  if (options.scale && !(*options.scale > 0 && *options.scale <= 1)) {
    return Errorf(ErrorCode::kInvalidArgument, "--scale: {} is not above 0 and at most 1",
                  *options.scale);
  }
  KVERN_ASSIGN_OR_RETURN(const sim::RequestTrace trace, sim::ReadRequestTrace(options.trace_file));
  const std::vector<size_t> selected = Select(trace, options.shape);
  const double scale = options.scale.value_or(ScaleThatFits(trace, selected, options.max_context));
  Workload workload = Planner(trace, scale, options).Plan(selected);
  if (workload.requests.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--scale: no request of {} fits into {} tokens: give a smaller one, or more -c",
                  options.trace_file, options.max_context);
  }
  workload.description = fmt::format(
      "{} of {} requests of {}, lengths × {:.4g}{}", workload.requests.size(),
      trace.requests.size(), options.trace_file, scale,
      workload.num_left_out > 0 ? fmt::format(", {} left out: longer than {} tokens",
                                              workload.num_left_out, options.max_context)
                                : "");
  return workload;
}

}  // namespace kvern::cli
