// MemoryTier: a tier in RAM. What authors of tiers can read as the contract in code, and what tests
// use to see the cache work with a tier that is slow, reorders, loses and lies.
//
// It does all its work in Poll(), at the latest moment that the contract allows: bytes are read and
// written when an operation completes, not when it starts, and a load that fails leaves half a
// record in its buffer. So a caller who takes a buffer back early is found out. Time is counted in
// calls of Poll(); all chance comes from the seed.
//
// What it holds beyond its capacity goes, least recently stored or loaded first. A store that comes
// again replaces the record. An operation that is cancelled fails at the next Poll() or goes on as
// if nothing had been said, by chance.
//
// Faults are planned by the number of an operation: loads and stores count together, from 0.
//
// One thread. No operation may be under way when it is destroyed and the buffers live on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "kvern/kv_tier.h"

namespace kvern::kv {

struct MemoryTierOptions {
  uint64_t capacity_bytes = uint64_t{1} << 30;  // of records
  // An operation completes with this call of Poll() after its start, drawn for each. At least 1.
  uint32_t min_latency_polls = 1;
  uint32_t max_latency_polls = 1;
  bool reorder = false;  // else operations complete in the order of their starts
  uint64_t seed = 0;
};

// What goes wrong with one operation. One that does not apply, because there is no byte to damage
// or no other record, fails the operation.
enum class TierFault {
  kFail,         // it completes with an error
  kDamage,       // one bit of what is read or written is flipped
  kOtherRecord,  // what is read or written is a record of another key
  kTruncate,     // the end of what is read or written is missing
  kLose,         // a load finds the record gone, although Contains() said it was there; a store
                 // succeeds, but the record is not there
};

class MemoryTier final : public Tier {
 public:
  explicit MemoryTier(const MemoryTierOptions& options);

  bool Contains(const TierKey& key) const override { return index_.contains(key); }
  void StartLoad(TierTicket ticket, const TierKey& key, std::span<std::byte> into) override;
  void StartStore(TierTicket ticket, const TierKey& key,
                  std::span<const std::byte> record) override;
  void Cancel(TierTicket ticket) override;
  void Poll(std::vector<TierCompletion>& completions) override;
  void Remove(const TierKey& key) override;

  // Plans a fault of the operation with this number, in place of an earlier plan. The next to start
  // is num_operations().
  void FaultAt(uint64_t operation, TierFault fault) { faults_[operation] = fault; }

  // Completes nothing, not even what is cancelled, for so many calls of Poll(), or until Resume().
  // What is under way then takes as long as if that time had not been.
  void Stall(std::optional<uint64_t> num_polls = std::nullopt);
  void Resume() { is_stalled_ = false; }

  uint64_t num_operations() const { return num_operations_; }  // started so far
  size_t num_under_way() const { return under_way_.size(); }
  size_t num_records() const { return records_.size(); }
  uint64_t bytes_held() const { return bytes_held_; }

 private:
  struct Operation {
    TierTicket ticket{};
    TierKey key{};
    std::span<std::byte> into{};          // a load
    std::span<const std::byte> record{};  // a store
    bool is_load = false;
    bool is_cancelled = false;
    std::optional<TierFault> fault{};
    uint64_t due = 0;  // in num_polls_
  };

  struct Record {
    TierKey key{};
    std::vector<std::byte> bytes;
  };

  // Keys are digests: any part of one is a hash.
  struct KeyHash {
    size_t operator()(const TierKey& key) const;
  };

  void Start(Operation operation);
  std::vector<Operation> TakeDue();
  Result<size_t> Complete(const Operation& operation);
  Result<size_t> Load(const Operation& operation);
  Result<size_t> Store(const Operation& operation);
  Result<std::vector<std::byte>> Moved(const Operation& operation, std::vector<std::byte> bytes);
  void Keep(const TierKey& key, std::vector<std::byte> bytes);

  const MemoryTierOptions options_;
  SplitMix64 random_;
  std::vector<Operation> under_way_;  // in the order of their starts
  std::map<uint64_t, TierFault> faults_;
  uint64_t num_operations_ = 0;
  uint64_t num_polls_ = 0;
  bool is_stalled_ = false;
  std::optional<uint64_t> num_stalled_polls_left_;

  std::list<Record> records_;  // least recently used first
  std::unordered_map<TierKey, std::list<Record>::iterator, KeyHash> index_;
  uint64_t bytes_held_ = 0;
};

}  // namespace kvern::kv
