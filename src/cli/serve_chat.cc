// chat: conversations under one system prompt. Each turn sends the whole history again, with the
// replies as they were.
#include "cli/serve_workload.h"

namespace kvern::cli {

Result<Workload> PlanChat(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload;
  const PromptPart system = PromptPart::Text(0, shape.prefix);
  workload.shared.push_back({system});
  uint64_t next_text = 1;
  for (uint32_t session = 0; session < shape.requests; ++session) {
    for (uint32_t turn = 0; turn < shape.turns; ++turn) {
      PlannedRequest request{.new_tokens = shape.new_tokens};
      if (turn == 0) {
        request.prompt = {system};
      } else {
        const size_t last = workload.requests.size() - 1;
        request.prompt = {PromptPart::PromptOf(last), PromptPart::ReplyOf(last)};
        request.after = {{last, shape.new_tokens}};
        request.delay_us = int64_t{shape.think_ms} * 1000;
      }
      request.prompt.push_back(PromptPart::Text(next_text++, shape.tail));
      workload.requests.push_back(std::move(request));
    }
  }
  workload.description = fmt::format(
      "{} sessions of {} turns: a system prompt of {} tokens, {} a turn, {} new, {} ms to think",
      shape.requests, shape.turns, shape.prefix, shape.tail, shape.new_tokens, shape.think_ms);
  return workload;
}

}  // namespace kvern::cli
