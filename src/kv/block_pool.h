// BlockPool: one budget of memory, handed out in blocks to all layer groups.
//
// A block is shared by counting references: Take() gives one, Retain() adds one, Release() drops
// one. A published block is known to an index that may hand it to others, so its bytes are final;
// when its last reference goes it is kept (cached) until it is unpublished. Fresh blocks are all
// zeros, so nobody reads another's past. A block's address is fixed while it is active or cached.
//
// Memory comes from the store one slab at a time, when first needed; a slab serves one group until
// all its blocks are free, then any group. A promise (Reserve) has its memory already: taking a
// promised block cannot fail. Slabs once obtained are kept until the pool is destroyed.
//
// Every byte of the budget is in exactly one of four states:
//   active    blocks with references
//   cached    published blocks without references
//   reserved  promised blocks, and the ends of slabs too short for a block
//   free      the rest
//
// One writer thread calls everything. stats() and usage() alone may be called from any thread:
// stats() is a consistent snapshot whose states sum to the budget at every moment. All operations
// are O(1) (in slabs for Reserve, in slabs for those that ask what could be reserved).
//
// Fragmentation: a slab serves one group, so the free blocks of another group's slabs are of no use
// to it. They are bounded: partly used slabs are filled first, a wholly free one goes back at once,
// and FindSpareSlab() names a slab whose cached blocks fit into the others of its group; the owner
// of the index moves them (Move). So when a group is refused, each other group has free room only
// in slabs that hold an active block, and less than one slab of it elsewhere.
//
// Invariants, checked by CheckInvariants():
//   1. The four states sum to budget_bytes().
//   2. A block is free exactly when it has no reference and is not published, and is then in its
//      slab's free list exactly once, or was never handed out.
//   3. Each slab knows how many of its blocks are active and cached, each owner how many bytes.
//   4. A group's promises never exceed the free blocks of its own slabs, and it keeps a wholly
//      free slab only while its promises need it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kv/snapshot.h"
#include "kvern/kv_report.h"
#include "kvern/kv_store.h"

namespace kvern::kv {

// Names a block of one pool for as long as it is active or cached.
enum class BlockId : uint32_t {};

inline constexpr size_t kMaxGroups = 4;

// Two huge pages: what the store is asked for at once, at least.
inline constexpr size_t kDefaultSlabBytes = size_t{4} << 20;

// Whom a block or a promise is charged to: one charge a block, however many hold it.
enum class OwnerId : uint32_t {};

// Blocks by group.
using BlockCounts = std::array<size_t, kMaxGroups>;

struct PoolStats {
  StateCounts bytes;       // sums to budget_bytes()
  StateCounts peak_bytes;  // each state's own peak: these do not sum to the budget
  // By group. `free` counts what this group could still take, so a slab that no group uses yet
  // counts for each; with a single group the states sum to num_blocks().
  std::array<StateCounts, kMaxGroups> blocks;
  size_t mapped_bytes = 0;  // what the store holds for this pool: grows with use
};

class BlockPool {
 public:
  // `budget_bytes` is rounded down to whole blocks (one group) or slabs (several). `store` must
  // outlive the pool. REQUIRES: 1 to kMaxGroups valid groups.
  BlockPool(BlockStore* store, size_t budget_bytes, const std::vector<GroupSpec>& groups,
            size_t min_slab_bytes = kDefaultSlabBytes);
  // REQUIRES: no block is active.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Promises `num_blocks` of `group`: that many Take()s cannot fail. Errors: kOutOfMemory, and
  // nothing has changed (but more of the budget may be mapped).
  Status Reserve(GroupId group, size_t num_blocks, OwnerId owner = {});

  // Takes back promises that are not needed. REQUIRES: the owner has that many.
  void Unreserve(GroupId group, size_t num_blocks, OwnerId owner = {});

  // Whether Reserve() of all these would succeed now, if the store does not refuse.
  bool CanReserve(const BlockCounts& num_blocks) const;

  // The same if every cached block were unpublished first.
  bool CouldReserve(const BlockCounts& num_blocks) const;

  // Turns one promise into a zeroed block with one reference. REQUIRES: the owner has a promise.
  BlockId Take(GroupId group, OwnerId owner = {});

  // Reserve(group, 1), then Take(group).
  Result<BlockId> Allocate(GroupId group);

  // Another holder of active or cached blocks.
  void Retain(BlockId id) { Retain(std::span(&id, 1)); }
  void Retain(std::span<const BlockId> ids);

  // One holder fewer; without the last one a block is cached if published, else free.
  void Release(BlockId id) { Release(std::span(&id, 1)); }
  void Release(std::span<const BlockId> ids);

  // Makes an active block's bytes final. REQUIRES: not published.
  void Publish(BlockId id);

  // The index forgets a block; if it was cached it is free. REQUIRES: published.
  void Unpublish(BlockId id);

  // A slab of another group than `wanting` without active blocks, whose cached blocks would all
  // fit into other slabs of its group: the one with the fewest. Its cached blocks, to be moved.
  std::optional<std::vector<BlockId>> FindSpareSlab(GroupId wanting) const;

  // Moves a cached block's bytes to another slab of its group; the old id is free. REQUIRES: the
  // block came from FindSpareSlab(), and nothing else has changed since but by Move().
  BlockId Move(BlockId id);

  // Called when a published block loses its last reference. None by default.
  void set_on_cached(std::function<void(BlockId)> on_cached) { on_cached_ = std::move(on_cached); }

  std::byte* Address(BlockId block) const;
  uint32_t num_references(BlockId block) const { return blocks_[Index(block)].num_references; }
  bool is_published(BlockId block) const { return blocks_[Index(block)].is_published; }
  // Held once and not published: the holder may write. Any other write must copy first.
  bool is_writable(BlockId block) const {
    return num_references(block) == 1 && !is_published(block);
  }

  PoolStats stats() const { return stats_.Read(); }
  // Owners are 0, 1, … and come into being when first named here or in Take().
  NamespaceUsage usage(OwnerId owner) const;
  GroupId GroupIdOf(BlockId block) const { return SlabOf(block).group; }
  size_t budget_bytes() const { return budget_bytes_; }
  size_t num_blocks(GroupId group) const { return BlocksIn(budget_bytes_, group); }
  const GroupSpec& group(GroupId group) const { return groups_[Index(group)].spec; }
  size_t num_groups() const { return groups_.size(); }
  BlockStore* store() const { return store_; }
  // Of tables of blocks and slabs.
  size_t metadata_bytes() const {
    return blocks_.capacity() * sizeof(Block) + slabs_.capacity() * sizeof(Slab);
  }

  // Aborts with a message if an invariant does not hold. O(blocks); for tests and debug builds.
  void CheckInvariants() const;

 private:
  using SlabList = std::list<uint32_t>;

  struct Block {
    uint32_t num_references = 0;
    union {
      uint32_t next_freed = 0;  // while free: the block freed before this one, in its slab
      OwnerId owner;            // while not
    };
    bool is_published = false;
  };

  // Written by the writer alone, read by any thread: relaxed.
  struct Owner {
    std::atomic<size_t> active_bytes{0};
    std::atomic<size_t> cached_bytes{0};
    std::atomic<size_t> reserved_bytes{0};
    std::atomic<size_t> peak_active_bytes{0};
    std::atomic<size_t> peak_cached_bytes{0};
  };

  struct Slab {
    Region memory;            // empty until first used
    size_t bytes = 0;         // of the budget
    size_t dirty_bytes = 0;   // from here on the memory is as the store gave it: zeros
    GroupId group = {};       // valid while assigned
    uint32_t capacity = 0;    // blocks of its group
    uint32_t num_opened = 0;  // blocks handed out at least once since it was assigned
    uint32_t num_freed = 0;   // length of the free list that starts at last_freed
    uint32_t last_freed = 0;
    uint32_t num_active = 0;
    SlabList::iterator place;  // its node, in one of the lists below

    uint32_t num_free() const { return capacity - num_opened + num_freed; }
  };

  struct Group {
    GroupSpec spec;
    size_t num_active = 0;
    size_t num_cached = 0;
    size_t num_promised = 0;
    size_t num_free = 0;        // in its own slabs, promised ones included
    size_t num_unassigned = 0;  // blocks that the slabs without a group would give it
    SlabList full;              // no block free
    SlabList partial;
    SlabList empty;  // all blocks free; kept only while promises need it
  };

  static size_t Index(BlockId block) { return static_cast<size_t>(block); }
  static size_t Index(GroupId group) { return static_cast<size_t>(group); }
  Slab& SlabOf(BlockId block) { return slabs_[Index(block) / slab_stride_]; }
  const Slab& SlabOf(BlockId block) const { return slabs_[Index(block) / slab_stride_]; }
  Group& GroupOf(BlockId block) { return groups_[Index(SlabOf(block).group)]; }

  // Where a slab of `group` (const or not) belongs.
  template <typename G>
  static auto& ListIn(G& group, const Slab& slab) {
    if (slab.num_free() == 0) return group.full;
    return slab.num_free() == slab.capacity ? group.empty : group.partial;
  }

  size_t BlocksIn(size_t bytes, GroupId group) const;
  // Slabs that `num_blocks` need beside the blocks `spare` of each group.
  size_t SlabsFor(const BlockCounts& num_blocks, const BlockCounts& spare) const;
  Status AssignSlab(GroupId group);
  void CountUnassigned();
  void ReturnSpareSlabs(Group& group);
  SlabList& ListOf(const Slab& slab) { return ListIn(groups_[Index(slab.group)], slab); }
  BlockId PopFree(Slab& slab);
  void PushFree(BlockId block);
  enum class Held { kActive, kCached };
  // Counts a block into (+1) or out of (-1) a state of its group, slab and owner.
  void Count(BlockId id, Held state, int change);
  void Count(Slab& slab, OwnerId owner, Held state, int change);
  // Counts promises into (+) or out of (−) their group and owner.
  void CountPromised(Group& group, OwnerId owner, ptrdiff_t change);
  class Shift;
  Owner& OwnerOf(OwnerId owner);
  PoolStats CountStats() const;
  void WriteStats();
  void CheckSlab(uint32_t slab_index) const;
  void CheckOwners() const;

  BlockStore* const store_;
  std::vector<Group> groups_;
  const size_t slab_bytes_;
  size_t slab_stride_;  // block ids per slab: enough for the group with the smallest blocks
  size_t budget_bytes_;
  std::vector<Slab> slabs_;
  std::vector<Block> blocks_;
  SlabList unassigned_;
  size_t unassigned_bytes_ = 0;
  size_t slack_bytes_ = 0;  // ends of assigned slabs
  size_t mapped_bytes_ = 0;
  StateCounts peak_bytes_;
  std::function<void(BlockId)> on_cached_;
  Snapshot<PoolStats> stats_;
  mutable std::mutex owners_mutex_;  // guards the deque, not what it holds
  std::deque<Owner> owners_;
};

}  // namespace kvern::kv
