// shared-prefix: many users of one system prompt, each with a question of their own.
#include "cli/serve_workload.h"

namespace kvern::cli {

Result<Workload> PlanSharedPrefix(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload;
  const PromptPart prefix = PromptPart::Text(0, shape.prefix);
  workload.shared.push_back({prefix});
  for (uint32_t i = 0; i < shape.requests; ++i) {
    workload.requests.push_back(
        {.prompt = {prefix, PromptPart::Text(1 + i, shape.tail)}, .new_tokens = shape.new_tokens});
  }
  workload.description =
      fmt::format("{} requests: one prefix of {} tokens, {} of their own, {} new", shape.requests,
                  shape.prefix, shape.tail, shape.new_tokens);
  return workload;
}

}  // namespace kvern::cli
