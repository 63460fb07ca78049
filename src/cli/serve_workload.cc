#include "cli/serve_workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace kvern::cli {

void SetArrivalRate(Workload& workload, double rate, uint64_t seed) {
  CHECK(rate > 0);
  std::vector<PlannedRequest*> roots;
  for (PlannedRequest& request : workload.requests) {
    if (request.after.empty()) roots.push_back(&request);
  }
  int64_t last_us = 0;
  for (const PlannedRequest* root : roots) last_us = std::max(last_us, root->delay_us);
  if (last_us > 0 && roots.size() > 1) {
    const double wanted_us = 1e6 * static_cast<double>(roots.size() - 1) / rate;
    const double factor = wanted_us / static_cast<double>(last_us);
    for (PlannedRequest* root : roots) {
      root->delay_us = std::llround(static_cast<double>(root->delay_us) * factor);
    }
    return;
  }
  SplitMix64 random(seed);
  double now_us = 0;
  for (PlannedRequest* root : roots) {
    now_us += -std::log1p(-random.Uniform()) * 1e6 / rate;
    root->delay_us = std::llround(now_us);
  }
}

Status SkipRequests(Workload& workload, size_t count) {
  if (count >= workload.requests.size()) {
    return Errorf(ErrorCode::kInvalidArgument, "--skip: there are {} requests: leave some of them",
                  workload.requests.size());
  }
  bool refers = false;
  const auto renumber = [count, &refers](auto& index) {
    refers = refers || index < count;
    index -= count;
  };
  workload.requests.erase(workload.requests.begin(),
                          workload.requests.begin() + static_cast<ptrdiff_t>(count));
  for (PlannedRequest& request : workload.requests) {
    for (PromptPart& part : request.prompt) {
      if (part.kind != PromptPart::Kind::kText) renumber(part.index);
    }
    for (Trigger& trigger : request.after) renumber(trigger.request);
    if (request.ends_with) renumber(*request.ends_with);
  }
  if (!refers) return {};
  return Errorf(ErrorCode::kInvalidArgument, "--skip: later requests refer to the first {}", count);
}

std::vector<size_t> PromptLengths(const Workload& workload) {
  std::vector<size_t> lengths;
  lengths.reserve(workload.requests.size());
  for (const PlannedRequest& request : workload.requests) {
    size_t length = 0;
    for (const PromptPart& part : request.prompt) {
      CHECK(part.kind == PromptPart::Kind::kText || part.index < lengths.size());
      switch (part.kind) {
        case PromptPart::Kind::kText:
          length += part.num_tokens;
          break;
        case PromptPart::Kind::kPrompt:
          length += lengths[part.index];
          break;
        case PromptPart::Kind::kReply:
          length += workload.requests[part.index].new_tokens;
          break;
      }
    }
    lengths.push_back(length);
  }
  return lengths;
}

size_t LongestSequence(const Workload& workload) {
  const std::vector<size_t> lengths = PromptLengths(workload);
  size_t longest = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    longest = std::max(longest, lengths[i] + workload.requests[i].new_tokens);
  }
  return longest;
}

size_t SumOfSequences(const Workload& workload) {
  const std::vector<size_t> lengths = PromptLengths(workload);
  size_t sum = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  for (const PlannedRequest& request : workload.requests) sum += request.new_tokens;
  return sum;
}

}  // namespace kvern::cli
