// Scheduler: whether there are blocks, and who yields theirs.
#include <algorithm>

#include "engine/scheduler.h"

namespace kvern::engine {

size_t Scheduler::capacity_tokens(const std::string& account) const {
  const kv::Room room = cache_.CapacityOf(account);
  const size_t num_kept = (cache_.stats().budget_bytes - room.pool) / block_bytes_;
  const size_t in_pool = capacity_blocks_ - std::min(capacity_blocks_, num_kept);
  // Rows that are copied have two blocks for a moment; where there is one group, none if need be.
  const size_t num_spare = has_one_group_ ? 0 : 1;
  const size_t in_share =
      room.share / block_bytes_ - std::min(room.share / block_bytes_, num_spare);
  return std::min(in_pool, in_share) * block_tokens_;
}

size_t Scheduler::AvailableBytes(const Sequence& sequence) const {
  const kv::Room room = cache_.RoomFor(sequence.request->ns);
  return sequence.lacks_share ? room.share : room.pool;
}

// What it lacks to compute so many tokens, if it does.
Scheduler::Lack Scheduler::LackOf(const Sequence& sequence, size_t num_tokens) const {
  const kv::Room room = cache_.RoomFor(sequence.request->ns);
  return sequence.kv->BytesNeeded(num_tokens) > room.share ? Lack::kShare : Lack::kPool;
}

void Scheduler::CountBlocks(Sequence& sequence, size_t num_tokens) {
  LiveRequest& request = *sequence.request;
  const size_t num_blocks = BlocksOf(num_tokens);
  request.num_blocks += num_blocks - sequence.num_blocks;
  sequence.num_blocks = num_blocks;
  request.report.blocks_peak = std::max(request.report.blocks_peak, request.num_blocks);
}

// Reserves, and lets others yield where they must.
bool Scheduler::MakeRoom(Sequence& sequence, size_t num_tokens) {
  while (!sequence.kv->Reserve(num_tokens).ok()) {
    const Lack lack = LackOf(sequence, num_tokens);
    is_kv_bound_ |= lack == Lack::kPool;
    Sequence* const victim = Victim(sequence, lack);
    if (victim == nullptr) return false;
    Unplan(*victim);
    Preempt(*victim, now_us_);
  }
  return true;
}

bool Scheduler::IsHelpedByRunning(const Sequence& sequence, Lack lack) const {
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    return other != &sequence && Helps(*other, sequence, lack);
  });
}

// Whether nobody's end would help it.
bool Scheduler::IsAlone(const Sequence& sequence, Lack lack) const {
  const auto helps = [&](const Sequence* other) { return Helps(*other, sequence, lack); };
  return !IsHelpedByRunning(sequence, lack) && std::ranges::none_of(loading_, helps);
}

// It did not fit, and there is no more now than there was.
bool Scheduler::IsBlockedStill(const Sequence& sequence) const {
  const Lack lack = sequence.lacks_share ? Lack::kShare : Lack::kPool;
  return sequence.blocked_bytes > 0 && !sequence.lease && !sequence.waiter &&
         IsHelpedByRunning(sequence, lack) && AvailableBytes(sequence) <= sequence.blocked_bytes;
}

// It does not fit.
Scheduler::Admission Scheduler::Block(Sequence& sequence, Lack lack) const {
  sequence.lacks_share = lack == Lack::kShare;
  sequence.blocked_bytes = std::max<size_t>(1, AvailableBytes(sequence));
  return sequence.lacks_share ? Admission::kNoShare : Admission::kNoRoom;
}

// What fits by the numbers can still be refused: by the machine, which is out of memory; because a
// share was lowered; or because the room is among blocks of other groups. In the last case it lets
// go of its blocks, which can move then, and comes back.
void Scheduler::FailIfAlone(Sequence& sequence) {
  const Lack lack = LackOf(sequence, 1);
  if (!IsAlone(sequence, lack)) return;
  const Status status = sequence.kv->Reserve(1);
  if (status.ok()) return;
  if (CanGather(sequence, sequence.kv->BytesNeeded(1))) return Preempt(sequence, now_us_);
  failures_.push_back({&sequence, status.error()});
}

// Whether it lacks room that is there: bytes that other groups have scattered.
bool Scheduler::CanGather(const Sequence& sequence, size_t bytes) const {
  const kv::Room room = cache_.RoomFor(sequence.request->ns);
  return !has_one_group_ && sequence.num_gathered < 2 && bytes <= std::min(room.share, room.pool);
}

// For one that nobody's end would help: moves together what is cached, and at the second time drops
// it, so that it fits if anything can make it.
void Scheduler::Gather(Sequence& sequence, size_t num_blocks) {
  while (DropLease(nullptr)) {
  }
  const bool is_first = ++sequence.num_gathered == 1;
  if (!is_first || !cache_.MakeRoom(sequence.request->ns, num_blocks).ok()) cache_.DropCached();
}

// Who yields to `sequence`: one whose reader is behind, else the last in rank behind it.
Sequence* Scheduler::Victim(const Sequence& sequence, Lack lack) const {
  Sequence* victim = nullptr;
  Rank last = RankOf(sequence);
  for (Sequence* const other : running_) {
    if (other == &sequence || !Helps(*other, sequence, lack)) continue;
    if (other->is_paused) return other;
    const Rank rank = RankOf(*other);
    if (rank <= last) continue;
    victim = other;
    last = rank;
  }
  return victim;
}

void Scheduler::Preempt(Sequence& sequence, int64_t now_us) {
  sequence.request->Log(LifecycleEvent::Kind::kPreempted, now_us, sequence.completion,
                        sequence.kv->committed());
  ++sequence.request->report.preemptions;
  ++counts_.preemptions;
  has_yielded_ = true;
  CountBlocks(sequence, 0);
  DropChunk(sequence);
  sequence.kv.reset();
  sequence.has_loaded = false;
  std::erase(running_, &sequence);
  if (proposer_ != nullptr) proposer_->Forget(sequence.key());
  Add(&sequence);
}

// Takes back what this step wanted of it.
void Scheduler::Unplan(const Sequence& sequence) {
  const auto found = std::ranges::find(slices_, &sequence, &ScheduledSlice::sequence);
  if (found == slices_.end()) return;
  std::vector<TokenId>& tokens = found->sequence->tokens;
  tokens.resize(tokens.size() - found->num_drafts);
  tokens_left_ += found->num_tokens;
  work_ -= found->work;
  num_decodes_ -= found->is_decode ? 1 : 0;
  slices_.erase(found);
}

// Whether all that it lacks is there, beside what the others that are in their prefill still lack.
// In a share, each of the others has room for one block more.
Scheduler::Lack Scheduler::LackToAdmit(const Sequence& sequence, size_t num_found) const {
  const size_t own = BlocksOf(sequence.tokens.size() + 1) - num_found / block_tokens_;
  size_t needed = own, of_share = own;
  for (const Sequence* other : running_) {
    const size_t more = BlocksOf(other->tokens.size() + 1) - BlocksOf(other->kv->length());
    needed += more;
    if (Helps(*other, sequence, Lack::kShare)) of_share += more + 1;
  }
  if (!running_.empty()) {
    needed += static_cast<size_t>(options_.watermark * static_cast<double>(capacity_blocks_));
  }
  const kv::Room room = cache_.RoomFor(sequence.request->ns);
  if (of_share * block_bytes_ > room.share) return Lack::kShare;
  return needed * block_bytes_ > room.pool ? Lack::kPool : Lack::kNothing;
}

// Makes one that runs yield to one that waits: whose reader is behind, or whose priority is lower.
bool Scheduler::YieldTo(const Sequence& sequence, Lack lack) {
  Sequence* const victim = Victim(sequence, lack);
  if (victim == nullptr) return false;
  const int priority = sequence.request->request.priority;
  const bool is_lower = policy_.by_priority && victim->kv->effective_priority() < priority;
  if (!victim->is_paused && !is_lower) return false;
  Unplan(*victim);
  Preempt(*victim, now_us_);
  return true;
}

}  // namespace kvern::engine
