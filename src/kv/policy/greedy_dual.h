// GreedyDualPolicy: the lightest candidate first, where weight wears off as the cache turns over.
//
//   priority = age + weight(candidate), fixed when it becomes a candidate
//   age      = priority of the last victim that was evicted; 0 at first
//
// So a candidate that nobody uses sinks below newer ones as the age rises past it, and one that is
// used comes back with the age of today. The least priority goes first; ties go to the least
// recently used, then to the one that was added first. The age never exceeds a priority: evicting
// another than the victim (say, because its time is over) leaves it alone.
//
// Young 1994 (GreedyDual), Cao and Irani 1997 (GreedyDual-Size), Cherkasova 1998 (-Frequency).
#pragma once

#include <cstdint>
#include <optional>

#include "kv/policy.h"
#include "kv/policy/item_heap.h"

namespace kvern::kv {

// The odds that a text found `num_uses` times is found again, p : 1 - p with the p of Laplace's
// rule of succession, (n + 1) / (n + 2). Beyond 255 uses fame adds nothing, so that it wears off.
double ReuseOdds(uint32_t num_uses);

class GreedyDualPolicy : public EvictionPolicy {
 public:
  // At least 0, and not NaN. Infinite weights are equal.
  using Weight = double (*)(const EvictionCandidate&);

  explicit GreedyDualPolicy(Weight weight) : weight_(weight) {}

  void Add(const EvictionCandidate& candidate) override;
  void Remove(uint32_t item) override;
  std::optional<uint32_t> Victim() override;
  void Evict(uint32_t item) override;

 private:
  struct Entry {
    double priority;
    int64_t last_used_us;
    uint32_t serial;
    uint32_t item;

    bool operator<(const Entry& other) const {
      if (priority != other.priority) return priority < other.priority;
      if (last_used_us != other.last_used_us) return last_used_us < other.last_used_us;
      return WasAddedBefore(serial, other.serial);
    }
  };
  static_assert(sizeof(Entry) == 24);

  const Weight weight_;
  double age_ = 0;
  uint32_t next_serial_ = 0;
  ItemHeap<Entry> order_;
};

}  // namespace kvern::kv
