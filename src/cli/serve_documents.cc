// documents: questions about long documents, in turn about each, so that a cache that keeps only
// the last text finds none of them.
#include "cli/serve_workload.h"

namespace kvern::cli {

Result<Workload> PlanDocuments(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload;
  for (uint32_t document = 0; document < shape.requests; ++document) {
    workload.shared.push_back({PromptPart::Text(document, shape.prefix)});
  }
  uint64_t next_text = shape.requests;
  for (uint32_t question = 0; question < shape.turns; ++question) {
    for (uint32_t document = 0; document < shape.requests; ++document) {
      workload.requests.push_back({.prompt = {PromptPart::Text(document, shape.prefix),
                                              PromptPart::Text(next_text++, shape.tail)},
                                   .new_tokens = shape.new_tokens});
    }
  }
  workload.description =
      fmt::format("{} documents of {} tokens, {} questions of {} about each in turn, {} new",
                  shape.requests, shape.prefix, shape.turns, shape.tail, shape.new_tokens);
  return workload;
}

}  // namespace kvern::cli
