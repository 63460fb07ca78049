// s3fifo: three first-in-first-out queues (Yang et al., "FIFO queues are all you need for cache
// eviction", SOSP 2023), for text that is a candidate only between its uses.
//
// New text joins the small queue. While that has a tenth of all candidates' bytes or more, victims
// come from its old end: what was used goes to the main queue instead, what was not is the victim
// and its key is remembered. Text that comes again while its key is remembered joins the main queue
// at once. At the old end of the main queue each use, of the last three, buys another round.
//
// A use takes text out (Remove) and brings it back (Add), but moves it no more than a hit moves an
// entry of a FIFO: its place in the queue is kept. A place that comes to the old end while its text
// is in use is given up; the text comes back as the newest of the main queue.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "kv/policy.h"
#include "kv/policy/ghost_keys.h"

namespace kvern::kv {
namespace {

constexpr uint32_t kMaxCredit = 3;
constexpr uint64_t kSmallShare = 10;  // one part in ten
constexpr uint32_t kNone = UINT32_MAX;

enum class State : uint8_t { kGone, kInUse, kCandidate };
enum class QueueId : uint8_t { kSmall, kMain };

// What is known of an item's text as long as it lives.
struct Text {
  uint64_t key = 0;
  uint64_t bytes = 0;
  uint32_t older = kNone;
  uint32_t newer = kNone;
  uint32_t num_uses = 0;  // when it last became a candidate
  uint8_t credit = 0;     // uses that have bought nothing yet, at most kMaxCredit
  State state = State::kGone;
  QueueId queue = QueueId::kSmall;
  bool has_place = false;  // in its queue
};
static_assert(sizeof(Text) == 32);

struct Queue {
  uint32_t oldest = kNone;
  uint32_t newest = kNone;
  uint32_t num_candidates = 0;
  uint64_t candidate_bytes = 0;
};

class S3FifoPolicy : public EvictionPolicy {
 public:
  void Add(const EvictionCandidate& candidate) override;
  void Remove(uint32_t item) override;
  std::optional<uint32_t> Victim() override;
  void Evict(uint32_t item) override;

 private:
  Queue& QueueOf(const Text& text) { return queues_[static_cast<size_t>(text.queue)]; }
  Text& Candidate(uint32_t item);
  Queue& VictimQueue();

  void Meet(Text& text, const EvictionCandidate& candidate);
  void Forget(uint32_t item);
  void Count(const Text& text);
  void Uncount(const Text& text);
  void TakePlace(uint32_t item);
  void GiveUpPlace(uint32_t item);

  std::vector<Text> texts_;  // by item
  Queue queues_[2];          // by QueueId
  GhostKeys ghosts_;
  size_t num_texts_ = 0;
  size_t max_texts_ = 0;  // ever at once: stands for the size of the cache, and bounds the ghosts
};

void S3FifoPolicy::Add(const EvictionCandidate& candidate) {
  const uint32_t item = candidate.item;
  if (item >= texts_.size()) texts_.resize(size_t{item} + 1);
  Text& text = texts_[item];
  CHECK(text.state != State::kCandidate);
  if (text.state == State::kInUse && text.key != candidate.key) Forget(item);
  if (text.state == State::kGone) Meet(text, candidate);

  // A count that fell is of text that was computed again.
  const uint32_t num_seen = candidate.num_uses >= text.num_uses ? text.num_uses : 0;
  text.credit = static_cast<uint8_t>(
      std::min<uint64_t>(uint64_t{text.credit} + (candidate.num_uses - num_seen), kMaxCredit));
  text.num_uses = candidate.num_uses;
  text.bytes = candidate.bytes;
  text.state = State::kCandidate;
  if (!text.has_place) TakePlace(item);
  Count(text);
}

void S3FifoPolicy::Remove(uint32_t item) {
  Text& text = Candidate(item);
  Uncount(text);
  text.state = State::kInUse;
}

// Ends: each turn takes a place or a credit away, and the candidates run out of both.
std::optional<uint32_t> S3FifoPolicy::Victim() {
  if (queues_[0].num_candidates + queues_[1].num_candidates == 0) return std::nullopt;
  for (;;) {
    const uint32_t item = VictimQueue().oldest;
    Text& text = texts_[item];
    const bool is_candidate = text.state == State::kCandidate;
    if (is_candidate && text.credit == 0) return item;

    GiveUpPlace(item);
    if (is_candidate) Uncount(text);
    if (text.queue == QueueId::kSmall) {
      text.queue = QueueId::kMain;
      text.credit = 0;
    } else if (is_candidate) {
      --text.credit;
    }
    if (!is_candidate) continue;
    TakePlace(item);
    Count(text);
  }
}

void S3FifoPolicy::Evict(uint32_t item) {
  const Text& text = Candidate(item);
  Uncount(text);
  if (text.queue == QueueId::kSmall) ghosts_.Insert(text.key, max_texts_);
  Forget(item);
}

Text& S3FifoPolicy::Candidate(uint32_t item) {
  CHECK(item < texts_.size() && texts_[item].state == State::kCandidate);
  return texts_[item];
}

// The small queue, unless it has less than its share; never one without candidates.
Queue& S3FifoPolicy::VictimQueue() {
  Queue& small = queues_[0];
  Queue& main = queues_[1];
  if (small.num_candidates == 0) return main;
  if (main.num_candidates == 0) return small;
  const uint64_t share = (small.candidate_bytes + main.candidate_bytes) / kSmallShare;
  return small.candidate_bytes >= share ? small : main;
}

void S3FifoPolicy::Meet(Text& text, const EvictionCandidate& candidate) {
  text = Text{.key = candidate.key};
  text.queue = ghosts_.Take(candidate.key) ? QueueId::kMain : QueueId::kSmall;
  max_texts_ = std::max(max_texts_, ++num_texts_);
}

void S3FifoPolicy::Forget(uint32_t item) {
  if (texts_[item].has_place) GiveUpPlace(item);
  texts_[item].state = State::kGone;
  --num_texts_;
}

void S3FifoPolicy::Count(const Text& text) {
  ++QueueOf(text).num_candidates;
  QueueOf(text).candidate_bytes += text.bytes;
}

void S3FifoPolicy::Uncount(const Text& text) {
  --QueueOf(text).num_candidates;
  QueueOf(text).candidate_bytes -= text.bytes;
}

void S3FifoPolicy::TakePlace(uint32_t item) {
  Text& text = texts_[item];
  Queue& queue = QueueOf(text);
  text.older = queue.newest;
  text.newer = kNone;
  (queue.newest == kNone ? queue.oldest : texts_[queue.newest].newer) = item;
  queue.newest = item;
  text.has_place = true;
}

void S3FifoPolicy::GiveUpPlace(uint32_t item) {
  Text& text = texts_[item];
  Queue& queue = QueueOf(text);
  (text.older == kNone ? queue.oldest : texts_[text.older].newer) = text.newer;
  (text.newer == kNone ? queue.newest : texts_[text.newer].older) = text.older;
  text.has_place = false;
}

}  // namespace

std::unique_ptr<EvictionPolicy> MakeS3FifoPolicy() { return std::make_unique<S3FifoPolicy>(); }

}  // namespace kvern::kv
