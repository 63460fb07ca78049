// mixed-prefill: streams decode, and a long prompt comes in between. The prompt is computed alone
// first, so that one run says what both sides lose.
#include "cli/serve_mixed_prefill.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kSettlingTokens = 8;
constexpr uint32_t kMaxStreamTokens = 2048;  // they are cancelled when the long prompt is done

}  // namespace

Result<Workload> PlanMixedPrefill(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload{.requests = {}, .uses_cache = false};
  const size_t arrival = 1 + size_t{shape.requests};
  workload.requests.push_back({.prompt = {PromptPart::Text(0, shape.prompt)}, .new_tokens = 1});
  PlannedRequest last{.prompt = {PromptPart::Text(arrival, shape.prompt)}, .new_tokens = 1};
  for (uint32_t i = 1; i <= shape.requests; ++i) {
    workload.requests.push_back({.prompt = {PromptPart::Text(i, shape.prefix)},
                                 .new_tokens = kMaxStreamTokens,
                                 .after = {{0, 1}},
                                 .ends_with = arrival});
    last.after.push_back({i, kSettlingTokens + shape.tail});
  }
  workload.requests.push_back(std::move(last));
  workload.description = fmt::format(
      "{} streams decode behind {} tokens each, and a prompt of {} comes after {} tokens",
      shape.requests, shape.prefix, shape.prompt, kSettlingTokens + shape.tail);
  return workload;
}

MixedPrefillResult JudgeMixedPrefill(const Workload& workload, const ServeRun& run) {
  const size_t arrival = workload.requests.size() - 1;
  const RequestRecord& alone = run.records.front();
  const RequestRecord& prompt = run.records[arrival];
  MixedPrefillResult result;
  if (!alone.first_us || !prompt.first_us) return result;
  int64_t all_decode_us = 0;
  for (size_t i = 1; i < arrival; ++i) {
    const RequestRecord& stream = run.records[i];
    if (stream.chunk_us.size() <= kSettlingTokens) return result;
    all_decode_us = std::max(all_decode_us, stream.chunk_us[kSettlingTokens]);
  }
  std::vector<double> before, during;
  for (size_t i = 1; i < arrival; ++i) {
    const std::vector<int64_t>& times = run.records[i].chunk_us;
    for (size_t j = 1; j < times.size(); ++j) {
      const double gap_us = static_cast<double>(times[j] - times[j - 1]);
      if (times[j - 1] >= all_decode_us && times[j] <= prompt.due_us) before.push_back(gap_us);
      if (times[j] > prompt.due_us && times[j] <= *prompt.first_us) during.push_back(gap_us);
    }
  }
  result.undisturbed_us = PercentilesOf(std::move(before));
  result.disturbed_us = PercentilesOf(std::move(during));
  const double tokens = static_cast<double>(prompt.prompt_tokens);
  result.alone_rate = tokens * 1e6 / static_cast<double>(*alone.first_us - alone.due_us);
  result.mixed_rate = tokens * 1e6 / static_cast<double>(*prompt.first_us - prompt.due_us);
  return result;
}

}  // namespace kvern::cli
