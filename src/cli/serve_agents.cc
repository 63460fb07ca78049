// agents: an agent sends sub-agents that all know its history and have a task of their own, reads
// what they answer, and goes on with that.
#include "cli/serve_workload.h"

namespace kvern::cli {

Result<Workload> PlanAgents(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload;
  std::vector<PlannedRequest>& requests = workload.requests;
  uint64_t next_text = 0;
  for (uint32_t agent = 0; agent < shape.requests; ++agent) {
    const PromptPart start = PromptPart::Text(next_text++, shape.prefix);
    workload.shared.push_back({start});
    PromptParts history = {start};
    std::vector<Trigger> after;
    for (uint32_t round = 0; round < shape.turns; ++round) {
      const size_t first = requests.size();
      for (uint32_t branch = 0; branch < shape.branches; ++branch) {
        PlannedRequest request{.prompt = history, .new_tokens = shape.new_tokens, .after = after};
        request.prompt.push_back(PromptPart::Text(next_text++, shape.tail));
        requests.push_back(std::move(request));
      }
      PlannedRequest merge{.prompt = history, .new_tokens = shape.new_tokens};
      for (size_t branch = first; branch < first + shape.branches; ++branch) {
        merge.prompt.push_back(PromptPart::ReplyOf(branch));
        merge.after.push_back({branch, shape.new_tokens});
      }
      const size_t merged = requests.size();
      requests.push_back(std::move(merge));
      history = {PromptPart::PromptOf(merged), PromptPart::ReplyOf(merged)};
      after = {{merged, shape.new_tokens}};
    }
  }
  workload.description = fmt::format(
      "{} agents, {} rounds of {} sub-agents: {} tokens to begin with, {} a task, {} new",
      shape.requests, shape.turns, shape.branches, shape.prefix, shape.tail, shape.new_tokens);
  return workload;
}

}  // namespace kvern::cli
