#include "kv/policy/greedy_dual.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::kv {

double ReuseOdds(uint32_t num_uses) { return std::min(num_uses, 255u) + 1.0; }

void GreedyDualPolicy::Add(const EvictionCandidate& candidate) {
  const double weight = weight_(candidate);
  CHECK(weight >= 0);
  order_.Insert({.priority = age_ + weight,
                 .last_used_us = candidate.last_used_us,
                 .serial = next_serial_++,
                 .item = candidate.item});
}

void GreedyDualPolicy::Remove(uint32_t item) { order_.Erase(item); }

std::optional<uint32_t> GreedyDualPolicy::Victim() {
  if (order_.empty()) return std::nullopt;
  return order_.least().item;
}

void GreedyDualPolicy::Evict(uint32_t item) {
  CHECK(!order_.empty());
  if (order_.least().item == item) age_ = order_.least().priority;
  order_.Erase(item);
}

}  // namespace kvern::kv
