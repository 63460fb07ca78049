#include "engine/scoring.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::engine {

Status ScoreTokens(Executor* executor, kv::SequenceCache* cache, std::span<const TokenId> tokens,
                   const ScoringOptions& options, const LogitsSink& sink) {
  CHECK(cache->length() == 0);
  for (size_t first = 0; first < tokens.size(); first += options.chunk) {
    const size_t count = std::min(options.chunk, tokens.size() - first);
    const size_t end = first + count;
    const size_t num_logits = end - std::clamp(options.first_wanted, first, end);
    KVERN_RETURN_IF_ERROR(cache->Extend(count));
    const PagedView view = cache->View();
    StepPlan plan;
    plan.slices.push_back({.tokens = tokens.subspan(first, count),
                           .first_position = static_cast<uint32_t>(first),
                           .views = {&view, 1},
                           .num_logits = static_cast<uint32_t>(num_logits)});
    KVERN_ASSIGN_OR_RETURN(const auto outputs, executor->Execute(plan));
    KVERN_RETURN_IF_ERROR(outputs[0].status);
    for (size_t i = 0; i < num_logits; ++i) sink(end - num_logits + i, outputs[0].logits[i]);
  }
  return {};
}

}  // namespace kvern::engine
