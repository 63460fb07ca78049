// cost: the least expected recomputation per byte first (GreedyDual-Size-Frequency).
#include <algorithm>
#include <cstdint>
#include <memory>

#include "kv/policy.h"
#include "kv/policy/greedy_dual.h"

namespace kvern::kv {
namespace {

// What frees nothing is divided by one byte: it goes after all that frees something.
double CostWeight(const EvictionCandidate& candidate) {
  const auto bytes = static_cast<double>(std::max(candidate.bytes, uint64_t{1}));
  return candidate.recompute_cost * ReuseOdds(candidate.num_uses) / bytes;
}

}  // namespace

std::unique_ptr<EvictionPolicy> MakeCostPolicy() {
  return std::make_unique<GreedyDualPolicy>(CostWeight);
}

}  // namespace kvern::kv
