// ArenaStore: a BlockStore without bytes: one budget of addresses, handed out in regions.
//
// For simulations: a budget of any size costs only address space, because nothing can be read or
// written there (an access faults). Zero() and Copy() are counted, not done. Unlike the system's
// memory, the arena has one size and does not move: what a contiguous region cannot get although
// enough bytes are free shows here, as external fragmentation.
//
// Holes are kept in address order and joined when they touch. First fit takes the lowest hole that
// is large enough: the classic choice of general allocators, which keeps the high end of the arena
// whole. Best fit takes the smallest such hole, the lowest of several.
//
// One writer thread calls everything; bytes_held() may be read from any thread.
//
// Invariants, checked by CheckInvariants():
//   1. Regions and holes cover the arena without overlap, and no two holes touch.
//   2. bytes_held() is the sum of the regions; each hole is known by its address and by its size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "kvern/kv_store.h"
#include "kvern/result.h"

namespace kvern::kv {

enum class ArenaFit { kFirst, kBest };

struct ArenaStats {
  size_t free_bytes = 0;
  size_t largest_hole_bytes = 0;  // the largest region that could be had now
  size_t num_holes = 0;
  // Ever:
  uint64_t num_refused = 0;
  size_t last_refused_bytes = 0;  // what the latest refusal was asked for
  uint64_t bytes_zeroed = 0;
  uint64_t bytes_copied = 0;
  uint64_t rows_copied = 0;  // by CopyRows(): their size is the engine's secret
};

class ArenaStore final : public BlockStore {
 public:
  // `budget_bytes` (> 0) is rounded down to kBlockAlignment. Errors: kOutOfMemory where the system
  // has no such range of addresses.
  static Result<std::unique_ptr<ArenaStore>> Create(size_t budget_bytes,
                                                    ArenaFit fit = ArenaFit::kFirst);
  // REQUIRES: every region was freed.
  ~ArenaStore() override;
  ArenaStore(const ArenaStore&) = delete;
  ArenaStore& operator=(const ArenaStore&) = delete;

  // O(holes) for first fit, O(log holes) for a refusal and for best fit. Errors: kOutOfMemory, with
  // what is free and the largest hole.
  Result<Region> Allocate(size_t bytes) override;
  void Free(Region region) override;
  void Zero(std::byte* to, size_t bytes) override;
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void CopyRows(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens) override;
  size_t bytes_held() const override { return bytes_held_.load(std::memory_order_relaxed); }

  size_t budget_bytes() const { return budget_bytes_; }
  ArenaStats stats() const;  // O(1)

  // Aborts with a message if an invariant does not hold. For tests.
  void CheckInvariants() const;

 private:
  using Extents = std::map<size_t, size_t>;  // offset in the arena → bytes

  ArenaStore(std::byte* base, size_t budget_bytes, ArenaFit fit);

  Extents::iterator FindHole(size_t bytes);
  void AddHole(size_t offset, size_t bytes);
  void RemoveHole(Extents::iterator hole);

  std::byte* const base_;
  const size_t budget_bytes_;
  const ArenaFit fit_;
  Extents holes_;
  std::set<std::pair<size_t, size_t>> holes_by_size_;  // bytes, offset
  Extents regions_;
  std::atomic<size_t> bytes_held_{0};
  ArenaStats counts_;  // what is counted as it happens
};

}  // namespace kvern::kv
