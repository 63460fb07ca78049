// mixed-prefill: streams decode, and a long prompt comes in between. The prompt is computed alone
// first, and streams like these decode undisturbed in rounds, so that one run says what both sides
// lose.
#include "cli/serve_mixed_prefill.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kSettlingTokens = 8;
constexpr uint32_t kRounds = 4;              // of streams; a prompt comes in the last
constexpr uint32_t kMaxStreamTokens = 2048;  // they are cancelled when the long prompt is done

// Of the streams of a round, time between tokens from when all decode until one ends or `until_us`;
// false where they did not get that far.
bool AddUndisturbed(std::span<const RequestRecord> streams, int64_t until_us,
                    std::vector<double>& gaps_us) {
  int64_t from_us = 0;
  for (const RequestRecord& stream : streams) {
    if (stream.chunk_us.size() <= kSettlingTokens) return false;
    from_us = std::max(from_us, stream.chunk_us[kSettlingTokens]);
    until_us = std::min(until_us, stream.chunk_us.back());
  }
  for (const RequestRecord& stream : streams) {
    const std::vector<int64_t>& times = stream.chunk_us;
    for (size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] < from_us || times[i] > until_us) continue;
      gaps_us.push_back(static_cast<double>(times[i] - times[i - 1]));
    }
  }
  return true;
}

}  // namespace

Result<Workload> PlanMixedPrefill(const WorkloadOptions& options) {
  const WorkloadShape& shape = options.shape;
  Workload workload{.requests = {}, .uses_cache = false};
  const size_t arrival = 1 + size_t{kRounds} * shape.requests;
  const uint32_t new_tokens = kSettlingTokens + shape.tail;
  workload.requests.push_back({.prompt = {PromptPart::Text(0, shape.prompt)}, .new_tokens = 1});
  std::vector<Trigger> ready = {{0, 1}};
  for (uint32_t round = 1; round <= kRounds; ++round) {
    std::vector<Trigger> done;
    for (uint32_t i = 0; i < shape.requests; ++i) {
      const size_t index = workload.requests.size();
      PlannedRequest stream{.prompt = {PromptPart::Text(index, shape.prefix)},
                            .new_tokens = new_tokens,
                            .after = ready};
      if (round == kRounds) {
        stream.new_tokens = kMaxStreamTokens;
        stream.ends_with = arrival;
      }
      workload.requests.push_back(std::move(stream));
      done.push_back({index, new_tokens});
    }
    ready = std::move(done);
  }
  workload.requests.push_back(
      {.prompt = {PromptPart::Text(arrival, shape.prompt)}, .new_tokens = 1, .after = ready});
  workload.description = fmt::format(
      "{} streams decode behind {} tokens each, and a prompt of {} comes after {} tokens",
      shape.requests, shape.prefix, shape.prompt, new_tokens);
  return workload;
}

MixedPrefillResult JudgeMixedPrefill(const Workload& workload, const ServeRun& run) {
  const size_t arrival = workload.requests.size() - 1;
  const RequestRecord& alone = run.records.front();
  const RequestRecord& prompt = run.records[arrival];
  MixedPrefillResult result;
  if (!alone.first_us || !prompt.first_us) return result;
  const auto streams = std::span(run.records).subspan(1, arrival - 1);
  const size_t num_streams = streams.size() / kRounds;
  std::vector<double> before, during;
  for (size_t i = 0; i < streams.size(); i += num_streams) {
    if (!AddUndisturbed(streams.subspan(i, num_streams), prompt.due_us, before)) return result;
  }
  for (const RequestRecord& stream : streams.last(num_streams)) {
    const std::vector<int64_t>& times = stream.chunk_us;
    for (size_t i = 1; i < times.size(); ++i) {
      if (times[i] <= prompt.due_us || times[i] > *prompt.first_us) continue;
      during.push_back(static_cast<double>(times[i] - times[i - 1]));
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
