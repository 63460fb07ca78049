// InFlight: who is computing or loading which text, and who waits for it (rule K6).
//
// A producer is an admitted sequence that has announced the prompt it will publish, or a lease that
// has begun to load its own and is to be admitted. A waiter waits
// for the end of what it shares with one producer, in whole blocks, and holds no memory. It is
// woken when that much is published. When a producer ends earlier, the best of its waiters is told
// to take over: it is a provisional producer, for whom the others go on waiting, until it is
// admitted or gives up, and then the next takes over. So nobody waits for nothing, and no text is
// computed twice because its first producer went away.
//
// One writer thread; Find() may be called by any number of readers while nobody writes. Tokens are
// copied for producers; those of waiters must stay valid while they wait.
//
// Invariants, checked by CheckInvariants():
//   1. A waiter that was not told anything has a producer, which has not published what it awaits.
//   2. A waiter that is a provisional producer was told to take over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kv/counters.h"
#include "kvern/kv.h"

namespace kvern::kv {

// Names a producer, provisional or admitted, for as long as it is one.
enum class ProducerId : uint64_t {};

class InFlight {
 public:
  explicit InFlight(uint32_t block_tokens) : block_tokens_(block_tokens) {}

  // What of a prompt an admitted sequence will publish: whole blocks up to its end.
  struct Announcement {
    NamespaceId ns;
    SequenceId sequence;
    std::span<const TokenId> tokens;
    size_t published;
    int priority;
  };
  // `taken_over`, if given, becomes this producer and keeps its waiters.
  ProducerId Announce(const Announcement& announcement, std::optional<ProducerId> taken_over);

  // A lease that has begun to load, or to wait for nobody: a producer until it is announced or
  // withdrawn.
  ProducerId AnnounceProvisional(NamespaceId ns, std::span<const TokenId> tokens, size_t published);

  // It has published so much. When that is all it announced, it is a producer no longer.
  void Advance(ProducerId id, size_t published);

  // It will publish no more: its waiters take over.
  void Withdraw(ProducerId id);

  // Its own priority, or the best among those who wait for it.
  int EffectivePriority(ProducerId id) const;
  // Whether what it appends at `position` is what it announced.
  bool Agrees(ProducerId id, size_t position, std::span<const TokenId> tokens) const;
  // The first position that a woken waiter, who has not looked up again, may join at.
  std::optional<size_t> FirstJoin(ProducerId id) const;

  struct Offer {
    ProducerId producer;
    Production production;
  };
  // The producer that will publish most of these tokens, if it is more than `num_held` of them. Who
  // is to produce it himself names his own production, `except`: he can wait for one that is
  // admitted, or for an older one, so that no two wait for each other in turn, and nobody computes.
  std::optional<Offer> Find(NamespaceId ns, std::span<const TokenId> tokens, size_t num_held,
                            std::optional<ProducerId> except = {}) const;

  // REQUIRES: Find() has just offered it.
  WaiterId Wait(const Offer& offer, std::span<const TokenId> tokens, int priority);
  // Ends waiting. If it was told to take over it stays the provisional producer that is returned,
  // until it is announced or withdrawn.
  std::optional<ProducerId> EndWait(WaiterId id);
  std::optional<SequenceId> ProducerOf(WaiterId id) const;

  // What waiters were told since the last call, the best first.
  std::vector<Event> TakeEvents();

  // Any thread.
  uint64_t num_take_overs() const { return num_take_overs_.Read(); }
  void CheckInvariants() const;

 private:
  struct Producer {
    NamespaceId ns;
    std::optional<SequenceId> sequence;  // none: provisional
    std::vector<TokenId> tokens;
    size_t published;
    size_t end;
    int priority;
    std::vector<WaiterId> waiters;  // who were told to go on stay here until they have
  };
  enum class Told { kNothing, kReady, kTakeOver };
  struct Waiting {
    std::optional<ProducerId> producer;
    std::span<const TokenId> tokens;
    size_t end;
    int priority;
    Told told = Told::kNothing;
    std::optional<ProducerId> provisional;  // what it is itself
  };

  size_t WholeBlocks(size_t num_tokens) const { return num_tokens / block_tokens_ * block_tokens_; }
  bool IsBetter(WaiterId a, WaiterId b) const;
  void Tell(WaiterId id, Told told);
  void Elect(NamespaceId ns, std::vector<WaiterId> waiters, size_t published);

  const uint32_t block_tokens_;
  uint64_t last_id_ = 0;
  std::map<ProducerId, Producer> producers_;
  std::map<WaiterId, Waiting> waiters_;
  std::vector<Event> events_;
  Counter num_take_overs_;
};

}  // namespace kvern::kv
