#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvern::engine {
Scheduler::Scheduler(const CoreParts& parts, const SchedulingPolicy* policy,
                     const SchedulerOptions& options)
    : cache_(*parts.cache),
      proposer_(parts.proposer),
      clock_(*parts.clock),
      policy_(*policy),
      options_(options),
      queue_(policy, options.ageing_us, parts.cache) {
  const kv::KvCacheOptions& kv_options = cache_.options();
  block_tokens_ = kv_options.groups[0].block_tokens;
  has_one_group_ = kv_options.groups.size() == 1;
  size_t num_zero_blocks = 0;
  for (const kv::GroupSpec& group : kv_options.groups) {
    block_bytes_ += group.block_bytes;
    if (group.kind == kv::GroupKind::kFull) continue;
    ++num_zero_blocks;
    has_full_groups_only_ = false;
    max_rollback_ = std::min<size_t>(max_rollback_, group.max_rollback);
  }
  const size_t num_blocks = cache_.stats().budget_bytes / block_bytes_;  // of whole slabs
  capacity_blocks_ = num_blocks - std::min(num_blocks, num_zero_blocks);
  const ExecutorInfo& info = parts.executor->info();
  num_layers_ = info.num_layers;
  kept_tokens_ = std::min(std::max<size_t>(1, options.step_tokens / 8), options.step_tokens - 1);
  max_chunk_tokens_ = std::min<size_t>(info.max_carried_tokens, options.step_tokens / 2);
}

// ---- Lists

void Scheduler::Add(Sequence* sequence) {
  sequence->phase = Phase::kWaiting;
  queue_.Add(sequence);
}

bool Scheduler::AddForked(Sequence* sequence, kv::Sequence blocks) {
  if (running_.size() >= options_.max_running) return false;
  sequence->was_admitted = true;
  sequence->tokens.reserve(sequence->num_prompt() + sequence->request->max_tokens);
  Start(*sequence, std::move(blocks));
  return true;
}

void Scheduler::Start(Sequence& sequence, kv::Sequence blocks) {
  sequence.kv.emplace(std::move(blocks));
  sequence.phase = Phase::kRunning;
  sequence.blocked_bytes = 0;
  sequence.num_gathered = 0;
  running_.push_back(&sequence);
  counts_.peak_running = std::max(counts_.peak_running, running_.size());
}

void Scheduler::Remove(Sequence* sequence) {
  DropChunk(*sequence);
  std::erase(running_, sequence);
  std::erase(loading_, sequence);
  queue_.Remove(sequence);
  if (sequence->waiter) waiters_.erase(static_cast<uint64_t>(sequence->waiter->id()));
  CountBlocks(*sequence, 0);
  sequence->kv.reset();
  sequence->waiter.reset();
  sequence->lease.reset();
  if (proposer_ != nullptr) proposer_->Forget(sequence->key());
  sequence->phase = Phase::kFinished;
}

Rank Scheduler::RankOf(const Sequence& sequence) const {
  const LiveRequest& request = *sequence.request;
  int64_t priority = 0;
  if (policy_.by_priority) {
    priority = sequence.kv ? sequence.kv->effective_priority() : request.request.priority;
  }
  return {request.arrival_us - priority * options_.ageing_us, static_cast<uint64_t>(request.id),
          sequence.completion};
}

size_t Scheduler::BlocksOf(size_t num_tokens) const {
  return (num_tokens + block_tokens_ - 1) / block_tokens_;
}

// ---- A step

std::span<const ScheduledSlice> Scheduler::Schedule(int64_t now_us) {
  // Where others took all the time, stopping earlier would not have helped.
  if (pace_ && !was_chunk_idle_) aim_.Told(now_us - now_us_ > options_.target_token_us);
  CountTime(now_us - now_us_);
  now_us_ = now_us;
  pace_.reset();
  ++step_;
  slices_.clear();
  tokens_left_ = options_.step_tokens;
  failures_.clear();
  work_ = 0;
  num_decodes_ = 0;
  has_prefill_ = has_chunk_ = has_yielded_ = is_kv_bound_ = is_queue_bound_ = false;
  cache_.SetTime(now_us);
  cache_.PollTier();
  TakeEvents();
  UpdatePauses();
  SetOrder();
  if (max_slices_) {
    PlanIsolated();
  } else {
    Draft();
    PlanDecodes();
    PlanPrefills();
  }
  const bool has_loaded = PollLoads();
  if (!max_slices_ || running_.empty()) AdmitWaiting();
  SetPace();
  while (DropLease(nullptr)) {
  }
  // What was let go of at the end may be what the next step needs.
  const bool has_come = slices_.empty() && TakeEvents();
  goes_on_ = slices_.empty() && (has_loaded || has_come || has_yielded_);
  counts_.steps_kv_bound += is_kv_bound_ ? 1 : 0;
  counts_.steps_queue_bound += is_queue_bound_ ? 1 : 0;
  return slices_;
}

void Scheduler::Told(std::span<const SliceOutput> outputs, int64_t execute_us) {
  int64_t chunk_us = 0;
  double work = 0;
  for (size_t i = 0; i < slices_.size(); ++i) {
    ScheduledSlice& slice = slices_[i];
    slice.sequence->last_step = step_;
    if (slice.is_chunk) {
      chunk_us = ChunkTold(slice, outputs[i].next_layer);
    } else {
      work += slice.work;
    }
  }
  if (max_slices_) {
    *max_slices_ *= 2;
    if (*max_slices_ > running_.size()) max_slices_.reset();
  }
  if (work > 0) cost_.Told(work, execute_us - chunk_us);
}

void Scheduler::ToldFailure() {
  max_slices_ = std::max<size_t>(1, slices_.size() / 2);
  if (in_chunk_ != nullptr) DropChunk(*in_chunk_);
}

// From the last step to this one. Where nothing was planned and nobody waited, the engine was idle.
void Scheduler::CountTime(int64_t step_us) {
  if (is_kv_bound_) {
    counts_.kv_bound_us += step_us;
  } else if (is_queue_bound_) {
    counts_.queue_bound_us += step_us;
  } else if (!slices_.empty()) {
    counts_.compute_bound_us += step_us;
  }
}

bool Scheduler::TakeEvents() {
  bool has_come = false;
  for (const kv::Event& event : cache_.TakeEvents()) {
    const auto found = waiters_.find(static_cast<uint64_t>(event.waiter));
    if (found == waiters_.end()) continue;
    has_come = true;
    Sequence* const sequence = found->second;
    waiters_.erase(found);
    Add(sequence);  // with its waiter, for the next lookup
  }
  return has_come;
}

bool Scheduler::PollLoads() {
  bool has_loaded = false;
  for (size_t i = 0; i < loading_.size();) {
    Sequence* const sequence = loading_[i];
    if (!cache_.Poll(*sequence->lease).done) {
      ++i;
      continue;
    }
    cache_.Install(*sequence->lease);
    sequence->has_loaded = true;
    loading_.erase(loading_.begin() + static_cast<ptrdiff_t>(i));
    Add(sequence);  // with its lease
    has_loaded = true;
  }
  return has_loaded;
}

void Scheduler::UpdatePauses() {
  const auto update = [&](Sequence* sequence) {
    const bool is_behind = !sequence->request->sink->HasRoom();
    if (is_behind == sequence->is_paused) return;
    sequence->is_paused = is_behind;
    sequence->request->Log(
        is_behind ? LifecycleEvent::Kind::kPaused : LifecycleEvent::Kind::kUnpaused, now_us_,
        sequence->completion, sequence->num_new());
  };
  for (Sequence* const sequence : running_) update(sequence);
  // Who has said nothing yet cannot be ahead of its reader, but its siblings can.
  for (Sequence* const sequence : queue_.sequences()) {
    if (sequence->was_admitted) update(sequence);
  }
}

void Scheduler::SetOrder() {
  order_ = running_;
  std::ranges::sort(order_,
                    [&](const Sequence* a, const Sequence* b) { return RankOf(*a) < RankOf(*b); });
}

// ---- Decode

// For prefill, whatever decodes.
size_t Scheduler::TokensKept() const {
  return std::max(kept_tokens_, in_chunk_ != nullptr ? in_chunk_->chunk_tokens : 0);
}

size_t Scheduler::MaxDraft(const Sequence& sequence) const {
  const size_t num_left = sequence.request->max_tokens - sequence.num_new();
  return std::min(num_left - 1, max_rollback_);
}

void Scheduler::Draft() {
  if (proposer_ == nullptr) return;
  drafts_.clear();
  size_t num_decoding = 0;
  for (const Sequence* sequence : order_) {
    num_decoding += sequence->is_decoding() && !sequence->is_paused ? 1 : 0;
  }
  for (Sequence* const sequence : order_) {
    sequence->draft.clear();
    if (sequence->is_paused || sequence->num_missing() != 1 || sequence->num_new() == 0) continue;
    const double history = WorkOf(sequence->tokens.size(), 1);
    const size_t wanted = sequence->draft_length.Next({.base_us = cost_.base_us(),
                                                       .per_token_us = cost_.rate_us() * history,
                                                       .draft_token_us = draft_cost_.us(),
                                                       .num_sequences = num_decoding});
    const size_t room = (options_.step_tokens - TokensKept()) / num_decoding;
    const size_t most = std::min({wanted, MaxDraft(*sequence), room - std::min<size_t>(room, 1)});
    if (most == 0) continue;
    drafts_.push_back({sequence->key(), sequence->tokens, most, &sequence->draft});
  }
  if (drafts_.empty()) return draft_cost_.NotAsked();
  const int64_t before_us = clock_.now_us();
  proposer_->Propose(drafts_);
  size_t num_drafted = 0;
  for (const DraftRequest& request : drafts_) num_drafted += request.draft->size();
  draft_cost_.Told(num_drafted, static_cast<double>(clock_.now_us() - before_us));
}

void Scheduler::PlanDecodes() {
  decoding_.clear();
  bool is_prefill_wanted = !queue_.sequences().empty();
  for (Sequence* const sequence : order_) {
    if (!sequence->is_decoding()) {
      is_prefill_wanted = true;
    } else if (!sequence->is_paused) {
      decoding_.push_back(sequence);
    }
  }
  const size_t kept = is_prefill_wanted ? TokensKept() : 0;
  tokens_left_ -= kept;
  // Where not all find room in a step they take turns.
  if (decoding_.size() > tokens_left_) {
    std::ranges::sort(decoding_, [&](const Sequence* a, const Sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : RankOf(*a) < RankOf(*b);
    });
    decoding_.resize(tokens_left_);
    is_queue_bound_ = true;
  }
  for (Sequence* const sequence : decoding_) PlanDecode(*sequence);
  tokens_left_ += kept;
}

bool Scheduler::PlanDecode(Sequence& sequence) {
  if (sequence.phase != Phase::kRunning || tokens_left_ == 0) return false;  // it yielded
  if (sequence.num_missing() == 0) {
    AddDecode(sequence, 0);
    return true;
  }
  size_t num_drafts = std::min(sequence.draft.size(), tokens_left_ - 1);
  if (num_drafts > 0 && !sequence.kv->Reserve(1 + num_drafts).ok()) num_drafts = 0;
  sequence.draft.resize(num_drafts);
  if (num_drafts == 0 && !MakeRoom(sequence, 1)) {
    FailIfAlone(sequence);
    return false;
  }
  AddDecode(sequence, num_drafts);
  return true;
}

void Scheduler::AddDecode(Sequence& sequence, size_t num_drafts) {
  AddSlice(sequence, 1 + num_drafts, num_drafts, /*is_chunk=*/false);
  slices_.back().is_decode = true;
  ++num_decodes_;
}

// After a step failed: few, whoever waited longest first, without drafts.
void Scheduler::PlanIsolated() {
  std::ranges::stable_sort(order_, {}, &Sequence::last_step);
  for (Sequence* const sequence : order_) {
    if (slices_.size() >= *max_slices_ || tokens_left_ == 0) return;
    if (sequence->phase != Phase::kRunning || sequence->is_paused) continue;
    sequence->draft.clear();
    if (sequence->is_decoding()) {
      PlanDecode(*sequence);
    } else {
      PlanPrefill(*sequence);
    }
  }
}

// REQUIRES: its blocks are reserved.
void Scheduler::AddSlice(Sequence& sequence, size_t num_tokens, size_t num_drafts, bool is_chunk) {
  ScheduledSlice slice = {.sequence = &sequence,
                          .first = sequence.kv->length(),
                          .num_tokens = num_tokens,
                          .num_drafts = num_drafts,
                          .is_chunk = is_chunk};
  slice.query_only = slice.first == sequence.tokens.size();
  if (slice.query_only) {
    --slice.first;
  } else {
    sequence.tokens.insert(sequence.tokens.end(), sequence.draft.begin(),
                           sequence.draft.begin() + static_cast<ptrdiff_t>(num_drafts));
    const auto tokens = std::span(sequence.tokens).subspan(slice.first, num_tokens);
    const Status appended = sequence.kv->Append(tokens);
    CHECK(appended.ok());
    CountBlocks(sequence, sequence.kv->length());
  }
  Plan(slice);
}

void Scheduler::Plan(ScheduledSlice slice) {
  Sequence& sequence = *slice.sequence;
  slice.samples = slice.first + slice.num_tokens == sequence.tokens.size();
  slice.work = WorkOf(slice.first, slice.num_tokens);
  if (slice.is_chunk) {
    slice.work = slice.work * (num_layers_ - sequence.chunk_layers) / num_layers_;
    sequence.chunk_tokens = slice.num_tokens;
    in_chunk_ = &sequence;
    has_chunk_ = true;
  }
  tokens_left_ -= slice.num_tokens;
  work_ += slice.work;
  slices_.push_back(slice);
}

// ---- Admission

kv::Prompt Scheduler::PromptOf(const Sequence& sequence) const {
  const CacheUse& cache = sequence.request->request.cache;
  // What the last token sees is gone where a window or a state has gone past it.
  const size_t max_hit = has_full_groups_only_ ? SIZE_MAX : sequence.tokens.size() - 1;
  return {.ns = sequence.request->ns,
          .tokens = sequence.tokens,
          .use_cache = cache.use && !sequence.distrusts_cache,
          .max_hit = max_hit,
          .retention = cache.retention};
}

void Scheduler::AdmitWaiting() {
  const bool may_admit =
      running_.size() < options_.max_running || std::ranges::any_of(running_, &Sequence::is_paused);
  if (tokens_left_ > 0 && may_admit) queue_.Look();
  for (Sequence* const sequence : queue_.sequences()) sequence->is_set_aside = false;
  while (Sequence* const sequence = queue_.Best(now_us_)) {
    const bool has_slot = running_.size() < options_.max_running;
    if (tokens_left_ == 0 || (!has_slot && !YieldTo(*sequence))) {
      is_queue_bound_ = true;
      return;
    }
    const Admission admission = TryAdmit(*sequence);
    is_kv_bound_ |= admission == Admission::kNoRoom;
    is_queue_bound_ |= admission == Admission::kNoTurn;
    if (admission == Admission::kNoShare) SetAside(sequence->request->account);
    if (admission == Admission::kNoRoom || admission == Admission::kNoTurn) return;
  }
}

// Those of an account at its share keep their order, and others go before them.
void Scheduler::SetAside(const std::string& account) {
  for (Sequence* const sequence : queue_.sequences()) {
    sequence->is_set_aside |= sequence->request->account == account;
  }
}

// Whether what its lease lacks comes from elsewhere: another sequence computes it, or a tier has
// it.
bool Scheduler::AwaitOthers(Sequence& sequence) {
  kv::Lease& lease = *sequence.lease;
  LiveRequest& request = *sequence.request;
  if (const auto producer = lease.producer()) {
    auto waiter = cache_.Wait(lease, request.request.priority);
    CHECK(waiter.ok());
    sequence.lease.reset();
    sequence.waiter.emplace(std::move(*waiter));
    waiters_.emplace(static_cast<uint64_t>(sequence.waiter->id()), &sequence);
    queue_.Remove(&sequence);
    sequence.phase = Phase::kWaitingPrefix;
    request.Log(LifecycleEvent::Kind::kWaiting, now_us_, sequence.completion, producer->end);
    return true;
  }
  if (lease.num_tier_tokens() > 0 && !sequence.has_loaded && cache_.StartLoad(lease).ok()) {
    queue_.Remove(&sequence);
    sequence.phase = Phase::kLoading;
    loading_.push_back(&sequence);
    request.Log(LifecycleEvent::Kind::kLoading, now_us_, sequence.completion,
                lease.num_tier_tokens());
    return true;
  }
  return false;
}

Scheduler::Admission Scheduler::TryAdmit(Sequence& sequence) {
  LiveRequest& request = *sequence.request;
  if (IsBlockedStill(sequence)) {
    return sequence.lacks_share ? Admission::kNoShare : Admission::kNoRoom;
  }
  sequence.tokens.reserve(sequence.num_prompt() + request.max_tokens);
  if (!sequence.lease) {
    sequence.lease.emplace(sequence.waiter
                               ? cache_.Retry(*std::exchange(sequence.waiter, std::nullopt))
                               : cache_.Lookup(PromptOf(sequence)));
  }
  if (AwaitOthers(sequence)) return Admission::kWaits;

  kv::Lease& lease = *sequence.lease;
  const size_t found = lease.num_ram_tokens() + lease.num_partial_tokens();
  const Prefill prefill = PrefillOf(found, sequence.tokens.size() - found);
  if (prefill.num_tokens == 0 && found < sequence.tokens.size()) {
    sequence.lease.reset();
    return Admission::kNoTurn;
  }
  Lack lack = LackToAdmit(sequence, found);
  while (lack != Lack::kNothing && (YieldTo(sequence, lack) || DropLease(&sequence))) {
    lack = LackToAdmit(sequence, found);
  }
  std::optional<Result<kv::Sequence>> admitted;
  if (lack == Lack::kNothing || !IsHelpedByRunning(sequence, lack)) {
    admitted = cache_.Admit(lease, {.priority = request.request.priority,
                                    .publish = request.request.cache.publish,
                                    .is_resume = sequence.was_admitted,
                                    .reserve_tokens = prefill.num_tokens});
  }
  sequence.lease.reset();
  if (!admitted || !admitted->ok()) {
    if (admitted) {
      const size_t num_wanted = BlocksOf(found + prefill.num_tokens) - found / block_tokens_;
      const kv::Room room = cache_.RoomFor(sequence.request->ns);
      const bool is_too_much = num_wanted * block_bytes_ > room.share;
      lack = is_too_much && room.share < room.pool ? Lack::kShare : Lack::kPool;
      if (IsAlone(sequence, lack)) {
        if (DropLease(nullptr)) return TryAdmit(sequence);
        if (CanGather(sequence, BlocksOf(found + prefill.num_tokens) * block_bytes_)) {
          Gather(sequence, num_wanted + 1);
          return TryAdmit(sequence);
        }
        failures_.push_back({&sequence, admitted->error()});
      }
    }
    return Block(sequence, lack);
  }
  queue_.Remove(&sequence);
  Start(sequence, std::move(**admitted));
  const size_t length = sequence.kv->length();
  request.Log(
      sequence.was_admitted ? LifecycleEvent::Kind::kResumed : LifecycleEvent::Kind::kAdmitted,
      now_us_, sequence.completion, length);
  CountBlocks(sequence, length);
  if (!request.report.queue_us) request.report.queue_us = now_us_ - request.arrival_us;
  if (!sequence.was_admitted && sequence.completion == 0) {
    request.report.prompt = sequence.kv->split();
    request.report.misses.assign(sequence.kv->misses().begin(), sequence.kv->misses().end());
  }
  sequence.was_admitted = true;
  AddSlice(sequence, std::max<size_t>(prefill.num_tokens, 1), 0, prefill.is_chunk);
  has_prefill_ = true;
  return Admission::kAdmitted;
}

// What was loaded for one that waits is left to the cache.
bool Scheduler::DropLease(const Sequence* but) {
  for (Sequence* const sequence : queue_.sequences()) {
    if (sequence == but || !sequence->lease) continue;
    sequence->lease.reset();
    return true;
  }
  return false;
}

}  // namespace kvern::engine
