#include "kv/in_flight.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/check.h"
#include "kv/tokens.h"

namespace kvern::kv {

ProducerId InFlight::Announce(const Announcement& announcement,
                              std::optional<ProducerId> taken_over) {
  const ProducerId id = taken_over.value_or(ProducerId{last_id_ + 1});
  if (!taken_over) ++last_id_;
  Producer& producer = producers_[id];  // new, or provisional with its waiters
  CHECK(!producer.sequence);
  producer.ns = announcement.ns;
  producer.sequence = announcement.sequence;
  producer.tokens.assign(announcement.tokens.begin(), announcement.tokens.end());
  producer.published = 0;
  producer.end = WholeBlocks(announcement.tokens.size());
  producer.priority = announcement.priority;
  Advance(id, announcement.published);
  return id;
}

ProducerId InFlight::AnnounceProvisional(NamespaceId ns, std::span<const TokenId> tokens,
                                         size_t published) {
  const ProducerId id{++last_id_};
  producers_.emplace(id, Producer{.ns = ns,
                                  .sequence = {},
                                  .tokens = {tokens.begin(), tokens.end()},
                                  .published = published,
                                  .end = WholeBlocks(tokens.size()),
                                  .priority = INT_MIN,
                                  .waiters = {}});
  return id;
}

void InFlight::Advance(ProducerId id, size_t published) {
  Producer& producer = producers_.at(id);
  producer.published = published;
  for (const WaiterId waiter : producer.waiters) {
    const Waiting& waiting = waiters_.at(waiter);
    if (waiting.told == Told::kNothing && waiting.end <= published) Tell(waiter, Told::kReady);
  }
}

void InFlight::Withdraw(ProducerId id) {
  const auto entry = producers_.find(id);
  CHECK(entry != producers_.end());
  const Producer producer = std::move(entry->second);
  producers_.erase(entry);
  std::vector<WaiterId> stranded;
  for (const WaiterId waiter : producer.waiters) {
    Waiting& waiting = waiters_.at(waiter);
    waiting.producer.reset();
    if (waiting.told == Told::kNothing) stranded.push_back(waiter);
  }
  Elect(producer.ns, std::move(stranded), producer.published);
}

// The best takes over for all that share more with it than is published; then the best of the rest.
void InFlight::Elect(NamespaceId ns, std::vector<WaiterId> waiters, size_t published) {
  std::ranges::sort(waiters, [&](WaiterId a, WaiterId b) { return IsBetter(a, b); });
  while (!waiters.empty()) {
    const WaiterId best = waiters.front();
    Waiting& leader = waiters_.at(best);
    const ProducerId id = AnnounceProvisional(ns, leader.tokens, published);
    Producer& producer = producers_.at(id);
    producer.priority = leader.priority;
    leader.provisional = id;
    Tell(best, Told::kTakeOver);
    num_take_overs_.Add(1);
    std::vector<WaiterId> rest;
    for (const WaiterId waiter : std::span(waiters).subspan(1)) {
      Waiting& waiting = waiters_.at(waiter);
      const size_t end = WholeBlocks(CommonPrefix(leader.tokens, waiting.tokens));
      if (end <= published) {
        rest.push_back(waiter);
        continue;
      }
      waiting.producer = id;
      waiting.end = end;
      producer.waiters.push_back(waiter);
    }
    waiters = std::move(rest);
  }
}

int InFlight::EffectivePriority(ProducerId id) const {
  const Producer& producer = producers_.at(id);
  int best = producer.priority;
  for (const WaiterId waiter : producer.waiters) {
    const Waiting& waiting = waiters_.at(waiter);
    if (waiting.told == Told::kNothing) best = std::max(best, waiting.priority);
  }
  return best;
}

bool InFlight::Agrees(ProducerId id, size_t position, std::span<const TokenId> tokens) const {
  const Producer& producer = producers_.at(id);
  if (position >= producer.tokens.size()) return true;
  const auto announced = std::span(producer.tokens).subspan(position);
  return CommonPrefix(announced, tokens) == std::min(announced.size(), tokens.size());
}

std::optional<size_t> InFlight::FirstJoin(ProducerId id) const {
  std::optional<size_t> first;
  for (const WaiterId waiter : producers_.at(id).waiters) {
    const Waiting& waiting = waiters_.at(waiter);
    if (waiting.told == Told::kReady) first = std::min(first.value_or(waiting.end), waiting.end);
  }
  return first;
}

std::optional<InFlight::Offer> InFlight::Find(NamespaceId ns, std::span<const TokenId> tokens,
                                              size_t num_held,
                                              std::optional<ProducerId> except) const {
  std::optional<Offer> best;
  for (const auto& [id, producer] : producers_) {
    if (producer.ns != ns || id == except || producer.published >= producer.end) continue;
    if (except && !producer.sequence && id > *except) continue;
    const size_t end = std::min(producer.end, WholeBlocks(CommonPrefix(producer.tokens, tokens)));
    if (end <= std::max(num_held, producer.published)) continue;
    if (best && end <= best->production.end) continue;
    best = Offer{id, {.sequence = producer.sequence, .end = end}};
  }
  return best;
}

WaiterId InFlight::Wait(const Offer& offer, std::span<const TokenId> tokens, int priority) {
  const WaiterId id{++last_id_};
  waiters_[id] = {.producer = offer.producer,
                  .tokens = tokens,
                  .end = offer.production.end,
                  .priority = priority,
                  .told = Told::kNothing,
                  .provisional = {}};
  producers_.at(offer.producer).waiters.push_back(id);
  return id;
}

std::optional<ProducerId> InFlight::EndWait(WaiterId id) {
  const auto entry = waiters_.find(id);
  CHECK(entry != waiters_.end());
  const Waiting waiting = entry->second;
  if (waiting.producer) std::erase(producers_.at(*waiting.producer).waiters, id);
  waiters_.erase(entry);
  std::erase_if(events_, [&](const Event& event) { return event.waiter == id; });
  return waiting.provisional;
}

std::optional<SequenceId> InFlight::ProducerOf(WaiterId id) const {
  const Waiting& waiting = waiters_.at(id);
  if (!waiting.producer) return std::nullopt;
  return producers_.at(*waiting.producer).sequence;
}

std::vector<Event> InFlight::TakeEvents() {
  std::ranges::sort(events_,
                    [&](const Event& a, const Event& b) { return IsBetter(a.waiter, b.waiter); });
  return std::exchange(events_, {});
}

bool InFlight::IsBetter(WaiterId a, WaiterId b) const {
  const int priority_a = waiters_.at(a).priority;
  const int priority_b = waiters_.at(b).priority;
  return priority_a != priority_b ? priority_a > priority_b : a < b;
}

void InFlight::Tell(WaiterId id, Told told) {
  waiters_.at(id).told = told;
  events_.push_back({told == Told::kReady ? Event::Kind::kReady : Event::Kind::kTakeOver, id});
}

void InFlight::CheckInvariants() const {
  for (const auto& [id, waiting] : waiters_) {
    if (waiting.told == Told::kNothing) {
      CHECK(waiting.producer && !waiting.provisional);
      CHECK(producers_.at(*waiting.producer).published < waiting.end);
    }
    if (waiting.producer) {
      const auto& waiters = producers_.at(*waiting.producer).waiters;
      CHECK(std::ranges::count(waiters, id) == 1);
    }
    if (waiting.provisional) {
      CHECK(waiting.told == Told::kTakeOver && !producers_.at(*waiting.provisional).sequence);
    }
  }
  for (const auto& [id, producer] : producers_) {
    for (const WaiterId waiter : producer.waiters) CHECK(waiters_.at(waiter).producer == id);
  }
}

}  // namespace kvern::kv
