// lfu: the least often used first, with dynamic ageing (LFU-DA, Arlitt et al. 2000).
#include <memory>

#include "kv/policy.h"
#include "kv/policy/greedy_dual.h"

namespace kvern::kv {
namespace {

// Never 0: text that was used once would not age the rest.
double UseWeight(const EvictionCandidate& candidate) { return ReuseOdds(candidate.num_uses); }

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLfuPolicy() {
  return std::make_unique<GreedyDualPolicy>(UseWeight);
}

}  // namespace kvern::kv
