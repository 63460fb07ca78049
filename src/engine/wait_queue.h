// WaitQueue: the sequences that wait for their turn, and who is next.
//
// Next is who has the highest class (priority, if the policy goes by it, and one more for each
// ageing_us of waiting); among those, whose tenant was served least; among those, whom the policy
// puts first. So whoever waits for ageing_us × (1 + the difference of priorities) longer than
// others goes before them: nobody starves.
//
// Not thread-safe. Best() takes O(n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/policy.h"
#include "engine/sequence.h"

namespace kvern::engine {

class WaitQueue {
 public:
  WaitQueue(const SchedulingPolicy* policy, int64_t ageing_us, const kv::KvCache* cache)
      : policy_(*policy), ageing_us_(ageing_us), cache_(*cache) {}

  void Add(Sequence* sequence);
  void Remove(Sequence* sequence);  // if it is there

  // Looks up what those that wait would find in the cache, if the policy wants to know. Once a
  // step: it takes time in proportion to their prompts.
  void Look();

  // The next that is neither paused nor set aside; nullptr if there is none.
  Sequence* Best(int64_t now_us) const;

  const std::vector<Sequence*>& sequences() const { return sequences_; }

 private:
  struct Place {
    int64_t age_class;
    double served;
    Candidate candidate;
  };
  int64_t ClassOf(const LiveRequest& request, int64_t now_us) const;
  Place PlaceOf(const Sequence& sequence, int64_t now_us) const;
  bool Before(const Place& a, const Place& b) const;

  const SchedulingPolicy& policy_;
  const int64_t ageing_us_;
  const kv::KvCache& cache_;
  std::vector<Sequence*> sequences_;
};

}  // namespace kvern::engine
