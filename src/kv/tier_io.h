// TierIo: moves records between a Tier and buffers of its own, a bounded number at a time.
//
// A buffer is needed by each operation under way and by each load that has succeeded, until
// Finish(). A load that finds no buffer free waits in a queue, first come, first served. A store
// does not wait: it is skipped, for keeping a record is never worth a delay. So nobody loses by
// starting more loads than there are buffers, as long as he takes what is loaded soon:
//
//   for (key : keys) ids.push_back(io.StartLoad(key));
//   …each time around:
//   for (LoadId id : io.Poll()) {           // those that have ended, not those that wait
//     auto record = *io.Loaded(id);         // bytes to verify and to copy to their place, or why
//     not … io.Finish(id);                        // the buffer goes to the next in the queue
//   }
//
// The tier owns a buffer from the start of an operation to its completion, whatever becomes of the
// load meanwhile: a load that is given up keeps its buffer until then. The destructor cancels what
// is under way and waits until the tier has completed all of it; a tier that does not complete what
// is cancelled breaks its contract, and blocks the destructor. The tier must outlive this object.
//
// Whether bytes are the right ones is not known here: see kv/record.h. Tickets and load ids are
// never used twice. What a tier says of tickets that are not under way is counted and ignored.
//
// One thread. No operation blocks but the destructor.
//
// Invariants, checked by CheckInvariants():
//   1. A buffer is free, or it belongs to one operation under way or one load that has succeeded.
//   2. A load waits only while no buffer is free.
//   3. Of loads, started == done + failed + cancelled + queued + under way and not given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kvern/kv_tier.h"

namespace kvern::kv {

// Names a load until Finish().
enum class LoadId : uint64_t {};

// Since construction.
struct TierIoStats {
  uint64_t loads_started = 0;    // StartLoad(), queued or not
  uint64_t loads_done = 0;       // the tier delivered a record
  uint64_t loads_failed = 0;     // it did not
  uint64_t loads_cancelled = 0;  // given up before either
  uint64_t stores_started = 0;
  uint64_t stores_done = 0;
  uint64_t stores_failed = 0;
  uint64_t stores_skipped = 0;  // no buffer was free
  uint64_t bytes_loaded = 0;
  uint64_t bytes_stored = 0;
  uint64_t stray_completions = 0;  // of tickets that were not under way: the tier is at fault
};

class TierIo {
 public:
  using Fill = std::function<void(std::span<std::byte> record)>;

  // With `max_operations` (> 0) buffers of `max_record_bytes` (> 0), which take memory when they
  // are first used. Error: kOutOfMemory.
  static Result<std::unique_ptr<TierIo>> Create(Tier* tier, size_t max_operations,
                                                size_t max_record_bytes);
  ~TierIo();

  TierIo(const TierIo&) = delete;
  TierIo& operator=(const TierIo&) = delete;

  // Starts to store a record of `record_bytes` (at most max_record_bytes), which `fill` writes
  // before this returns; all of it, for the buffer may hold another's. False, and without a call of
  // `fill`, if no buffer is free. How the store ends is seen in stats() and Tier::Contains() alone.
  bool TryStore(const TierKey& key, size_t record_bytes, const Fill& fill);

  // Starts to load a record now, or as soon as a buffer is free. Finish() must follow.
  LoadId StartLoad(const TierKey& key);

  // Takes completions from the tier and starts what is queued. Returns the loads that have ended,
  // well or badly, since the last call; valid until the next one.
  std::span<const LoadId> Poll();

  // Nothing while the load is under way or queued; then the record, valid until Finish(), or why
  // there is none.
  std::optional<Result<std::span<const std::byte>>> Loaded(LoadId load) const;

  // Forgets the load and gives its buffer back: at once, or on completion if it is under way, which
  // is cancelled then.
  void Finish(LoadId load);

  size_t max_operations() const { return slots_.size(); }
  size_t max_record_bytes() const { return max_record_bytes_; }
  size_t num_under_way() const { return under_way_.size(); }  // in the tier's hands
  size_t num_queued() const { return queue_.size(); }
  const TierIoStats& stats() const { return stats_; }

  // Aborts with a message if an invariant does not hold. For tests and debug builds.
  void CheckInvariants() const;

 private:
  enum class SlotState {
    kFree,
    kStoring,
    kLoading,
    kGivenUp,  // a load that is under way, although nobody wants it any more
    kLoaded,
  };

  struct Slot {
    AlignedBuffer buffer;
    SlotState state = SlotState::kFree;
    uint64_t number = 0;      // of the operation: its ticket, and its load id if it is a load
    size_t record_bytes = 0;  // kStoring, kLoaded
  };

  // Queued if it has neither a slot nor an error.
  struct Load {
    std::optional<size_t> slot;
    std::optional<Error> error;
  };

  TierIo(Tier* tier, std::vector<AlignedBuffer> buffers, size_t max_record_bytes);

  size_t TakeSlot(SlotState state, uint64_t number);
  void FreeSlot(size_t slot);
  void StartQueued();
  void Complete(const TierCompletion& completion);
  void EndLoad(size_t slot, const Result<size_t>& bytes);

  Tier* const tier_;
  const size_t max_record_bytes_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_slots_;
  uint64_t next_number_ = 1;
  std::unordered_map<uint64_t, size_t> under_way_;  // operation → slot
  std::unordered_map<uint64_t, Load> loads_;
  std::map<uint64_t, TierKey> queue_;  // load → what it wants; older loads have lower numbers
  std::vector<LoadId> ended_;
  std::vector<TierCompletion> completions_;
  TierIoStats stats_;
};

}  // namespace kvern::kv
