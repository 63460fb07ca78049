#include "engine/wait_queue.h"

#include <algorithm>

namespace kvern::engine {
namespace {

// Looking into the cache takes time in proportion to the prompt, so only the first to come are
// looked up.
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
                        .num_tokens = sequence.tokens.size()}};
}

bool WaitQueue::Before(const Place& a, const Place& b) const {
  if (a.age_class != b.age_class) return a.age_class > b.age_class;
  if (a.served != b.served) return a.served < b.served;
  return policy_.before(a.candidate, b.candidate);
}

Sequence* WaitQueue::Best(int64_t now_us) {
  Sequence* best = nullptr;
  Place best_place{};
  size_t num_looks = 0;
  for (Sequence* const sequence : sequences_) {
    if (sequence->is_paused) continue;
    Place place = PlaceOf(*sequence, now_us);
    if (policy_.looks && sequence->request->request.cache.use && num_looks++ < kMaxLooks) {
      const auto found = cache_.Explain(sequence->request->ns, sequence->tokens);
      place.candidate.num_found = found.split.ram + found.split.partial;
    }
    if (best == nullptr || Before(place, best_place)) {
      best = sequence;
      best_place = place;
    }
  }
  return best;
}

Sequence* WaitQueue::Worst(int64_t now_us) {
  Sequence* worst = nullptr;
  for (Sequence* const sequence : sequences_) {
    if (worst == nullptr || Before(PlaceOf(*worst, now_us), PlaceOf(*sequence, now_us))) {
      worst = sequence;
    }
  }
  return worst;
}

}  // namespace kvern::engine
