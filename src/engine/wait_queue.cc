#include "engine/wait_queue.h"

#include <algorithm>

namespace kvern::engine {
namespace {

// Only the first to come are looked up: the others have their turn to wait for anyway.
constexpr size_t kMaxLooks = 32;

}  // namespace

void WaitQueue::Add(Sequence* sequence) { sequences_.push_back(sequence); }

void WaitQueue::Remove(Sequence* sequence) { std::erase(sequences_, sequence); }

int64_t WaitQueue::ClassOf(const LiveRequest& request, int64_t now_us) const {
  const int64_t priority = policy_.by_priority ? request.request.priority : 0;
  return priority + (now_us - request.arrival_us) / ageing_us_;
}

WaitQueue::Place WaitQueue::PlaceOf(const Sequence& sequence, int64_t now_us) const {
  const LiveRequest& request = *sequence.request;
  return {.age_class = ClassOf(request, now_us),
          .served = request.tenant->served,
          .candidate = {.arrival = static_cast<uint64_t>(sequence.key()),
                        .num_found = sequence.num_found}};
}

bool WaitQueue::Before(const Place& a, const Place& b) const {
  if (a.age_class != b.age_class) return a.age_class > b.age_class;
  if (a.served != b.served) return a.served < b.served;
  return policy_.before(a.candidate, b.candidate);
}

void WaitQueue::Look() {
  if (!policy_.looks) return;
  size_t num_looks = 0;
  for (Sequence* const sequence : sequences_) {
    const bool is_looked_up = sequence->request->request.cache.use && num_looks++ < kMaxLooks;
    sequence->num_found = 0;
    if (!is_looked_up) continue;
    const auto found = cache_.Explain(sequence->request->ns, sequence->tokens);
    sequence->num_found = found.split.ram + found.split.partial;
  }
}

Sequence* WaitQueue::Best(int64_t now_us) const {
  Sequence* best = nullptr;
  Place best_place{};
  for (Sequence* const sequence : sequences_) {
    if (sequence->is_paused || sequence->is_set_aside) continue;
    const Place place = PlaceOf(*sequence, now_us);
    if (best == nullptr || Before(place, best_place)) {
      best = sequence;
      best_place = place;
    }
  }
  return best;
}

}  // namespace kvern::engine
