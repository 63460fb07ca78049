// The part of the checker for waiters: who may be waited for, who is told, and that nobody sleeps
// for ever.
#include <algorithm>

#include "kv/model_check/checker.h"

namespace kvern::kv::model_check {
namespace {

constexpr size_t kMaxWaiters = 5;

}  // namespace

const Checker::LiveSequence* Checker::FindSequence(SequenceId id) const {
  for (const auto& sequence : sequences_) {
    if (sequence->real.id() == id) return sequence.get();
  }
  return nullptr;
}

// Up to where a sequence will publish a prompt.
size_t Checker::ProducedEnd(const LiveSequence& sequence, const Text& prompt) const {
  const NaiveSequence& model = sequence.model;
  return std::min(RoundDown(CommonLength(prompt.tokens(), model.prompt().tokens())),
                  model.announced_end);
}

bool Checker::MayProvide(const LiveSequence& sequence, const Text& prompt) const {
  const NaiveSequence& model = sequence.model;
  return model.publishes && model.text().ns() == prompt.ns() &&
         ProducedEnd(sequence, prompt) > model.published;
}

void Checker::Wait(const Operation& operation) {
  LiveLease* const lease = Pick(leases_, operation.object);
  if (lease == nullptr || waiters_.size() >= kMaxWaiters) return;
  const int priority = static_cast<int>(operation.random % 4);
  const KvStats before = cache_->stats();
  const std::optional<Production> producer = lease->real->producer();
  Result<Waiter> real = cache_->Wait(*lease->real, priority);
  const LiveSequence* const sequence =
      producer && producer->sequence ? FindSequence(*producer->sequence) : nullptr;
  if (!real.ok()) {
    Trace("no wait: {}", real.error().message);
    Require(real.error().code == ErrorCode::kInvalidArgument, "Wait: {}", real.error().message);
    Require(sequence == nullptr || !MayProvide(*sequence, lease->prompt()),
            "the producer is at work, and cannot be waited for: {}", real.error().message);
    Require(lease->real->num_ram_tokens() == lease->ram &&
                lease->real->num_partial_tokens() == lease->partial,
            "a lease changed that could not wait");
    RequireSameMemory(before);
    return;
  }
  const KvStats after = cache_->stats();
  Require(after.bytes.active <= before.bytes.active, "a waiter holds memory");
  auto waiter = std::make_unique<LiveWaiter>(std::move(*real), lease->shared_prompt);
  waiter->max_hit = lease->max_hit;
  waiter->priority = priority;
  waiter->arrival = num_arrivals_++;
  // Perhaps another one than the lease knew.
  const auto awaited = waiter->real.producer();
  const LiveSequence* const provider = awaited ? FindSequence(*awaited) : nullptr;
  Require(!awaited || (provider != nullptr && MayProvide(*provider, waiter->prompt())),
          "a wait for sequence {}, which does not produce this",
          awaited ? static_cast<uint64_t>(*awaited) : 0);
  waiter->end = provider != nullptr ? ProducedEnd(*provider, waiter->prompt()) : block_tokens();
  waiter->ram_before_wait = lease->ram_before_wait.value_or(lease->ram);
  Trace("waiter {} of priority {} for sequence {} up to {}",
        static_cast<uint64_t>(waiter->real.id()), priority,
        awaited ? static_cast<uint64_t>(*awaited) : 0, waiter->end);
  waiters_.push_back(std::move(waiter));
  DropLease(lease);
}

void Checker::Retry(const Operation& operation) {
  // Mostly one that was told.
  LiveWaiter* waiter = Pick(waiters_, operation.object);
  for (const auto& other : waiters_) {
    if (operation.random % 4 != 0 && other->was_told) waiter = other.get();
  }
  if (waiter == nullptr) return;
  Trace("waiter {}", static_cast<uint64_t>(waiter->real.id()));
  auto lease = std::make_unique<LiveLease>(waiter->shared_prompt);
  lease->max_hit = waiter->max_hit;
  lease->ram_before_wait = waiter->ram_before_wait;
  // It may have been told without our knowledge yet.
  lease->takes_over = waiter->takes_over || (!waiter->was_told && !waiter->real.producer());
  lease->real.emplace(cache_->Retry(std::move(waiter->real)));
  Erase(waiters_, waiter);
  CheckLease(*lease);
  leases_.push_back(std::move(lease));
}

void Checker::TakeEvents() {
  std::vector<Event> events = cache_->TakeEvents();
  if (options_.mutation == Mutation::kDropsEvent && !events.empty() && !is_mutated_) {
    is_mutated_ = true;
    events.erase(events.begin());
  }
  CheckEvents(events);
  CheckNobodySleeps();
  CheckPriorities();
}

void Checker::CheckEvents(std::span<const Event> events) {
  const LiveWaiter* last = nullptr;
  for (const Event& event : events) {
    const bool takes_over = event.kind == Event::Kind::kTakeOver;
    Trace("waiter {} {}", static_cast<uint64_t>(event.waiter),
          takes_over ? "takes over" : "is ready");
    LiveWaiter* waiter = nullptr;
    for (const auto& entry : waiters_) {
      if (entry->real.id() == event.waiter) waiter = entry.get();
    }
    Require(waiter != nullptr, "an event for waiter {}, who is gone",
            static_cast<uint64_t>(event.waiter));
    Require(!waiter->was_told, "waiter {} is told twice", static_cast<uint64_t>(event.waiter));
    Require(last == nullptr || last->priority > waiter->priority ||
                (last->priority == waiter->priority && last->arrival < waiter->arrival),
            "events are not told best first");
    const bool is_published =
        index_.EverHad(waiter->prompt().prefix(waiter->end), NaiveIndex::kBlock);
    Require(takes_over || is_published || num_take_overs_ > 0,
            "waiter {} is ready, and nobody published its {} tokens",
            static_cast<uint64_t>(event.waiter), waiter->end);
    waiter->was_told = true;
    waiter->takes_over = takes_over;
    num_take_overs_ += takes_over;
    last = waiter;
  }
}

// Somebody who shares the prompt up to `end` took over or loads it, and has not admitted it yet.
bool Checker::IsTakenOver(const Text& prompt, size_t end) const {
  const auto shares = [&](const Text& other) {
    return other.ns() == prompt.ns() && CommonLength(other.tokens(), prompt.tokens()) >= end;
  };
  for (const auto& waiter : waiters_) {
    if (waiter->takes_over && shares(waiter->prompt())) return true;
  }
  for (const auto& lease : leases_) {
    const bool loads = lease->is_loading || lease->was_loaded;
    if ((lease->takes_over || loads) && shares(lease->prompt())) return true;
  }
  return false;
}

// Somebody who was not told yet waits for the prompt up to `end`.
bool Checker::IsAwaited(const Text& prompt, size_t end) const {
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& waiter) {
    return !waiter->was_told && waiter->prompt().ns() == prompt.ns() &&
           CommonLength(waiter->prompt().tokens(), prompt.tokens()) >= end;
  });
}

void Checker::CheckNobodySleeps() const {
  for (const auto& waiter : waiters_) {
    if (waiter->was_told) continue;
    const std::optional<SequenceId> producer = waiter->real.producer();
    if (!producer) {
      Require(IsTakenOver(waiter->prompt(), block_tokens()),
              "waiter {} sleeps, and nobody took over", static_cast<uint64_t>(waiter->real.id()));
      continue;
    }
    const LiveSequence* const sequence = FindSequence(*producer);
    Require(sequence != nullptr, "waiter {} waits for sequence {}, which is gone",
            static_cast<uint64_t>(waiter->real.id()), static_cast<uint64_t>(*producer));
    Require(setup_.has_faults || MayProvide(*sequence, waiter->prompt()),
            "waiter {} waits for sequence {}, which will not publish more of its prompt: up to {} "
            "of {} published",
            static_cast<uint64_t>(waiter->real.id()), static_cast<uint64_t>(*producer),
            sequence->model.published, ProducedEnd(*sequence, waiter->prompt()));
  }
}

void Checker::CheckPriorities() const {
  for (const auto& sequence : sequences_) {
    int priority = sequence->model.priority;
    for (const auto& waiter : waiters_) {
      if (!waiter->was_told && waiter->real.producer() == sequence->real.id()) {
        priority = std::max(priority, waiter->priority);
      }
    }
    Require(sequence->real.effective_priority() == priority,
            "sequence {} has priority {}, its own and its waiters' best is {}",
            static_cast<uint64_t>(sequence->real.id()), sequence->real.effective_priority(),
            priority);
  }
}

}  // namespace kvern::kv::model_check
