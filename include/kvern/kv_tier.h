// Tier: storage below RAM that keeps records of blocks: a disk, a server, or memory in a test.
//
// A tier moves opaque byte strings under 32-byte keys, asynchronously. The library writes records
// into it and verifies every record that comes back (docs/record-format.md): a tier may lose,
// delay, reorder, mix up or damage what it holds without anybody getting a wrong answer. What it
// must not do is touch a buffer before StartLoad() or after the completion of that ticket.
//
// One thread at a time calls all methods, but Contains() may be called by several while no other
// is. A tier may use threads of its own behind them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvern/result.h"

namespace kvern::kv {

using TierKey = std::array<std::byte, 32>;

// Names one operation, chosen by the caller, until its completion was polled.
enum class TierTicket : uint64_t {};

struct TierCompletion {
  TierTicket ticket;
  Result<size_t> bytes;  // read or written; or why not
};

class Tier {
 public:
  virtual ~Tier() = default;

  // Whether a load could succeed now. True only once a store of the key has completed.
  virtual bool Contains(const TierKey& key) const = 0;

  // Begins to read the record of `key` into `into`, which stays valid until completion. A record
  // that is longer than `into` fails.
  virtual void StartLoad(TierTicket ticket, const TierKey& key, std::span<std::byte> into) = 0;

  // Begins to write a record, which stays valid until completion.
  virtual void StartStore(TierTicket ticket, const TierKey& key,
                          std::span<const std::byte> record) = 0;

  // Asks to end an operation early. It completes all the same, possibly with success.
  virtual void Cancel(TierTicket ticket) = 0;

  // Appends what has completed since the last call, in any order, each ticket once.
  virtual void Poll(std::vector<TierCompletion>& completions) = 0;

  // Forgets a record, if it is there: it was found to be bad.
  virtual void Remove(const TierKey& key) = 0;
};

}  // namespace kvern::kv
