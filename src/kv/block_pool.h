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
// One writer thread calls everything. stats() alone may be called from any thread: it is a
// consistent snapshot whose states sum to the budget at every moment. All operations are O(1) (in
// slabs for Reserve); none allocates metadata after construction.
//
// Invariants, checked by CheckInvariants():
//   1. The four states sum to budget_bytes().
//   2. A block is free exactly when it has no reference and is not published, and is then in its
//      slab's free list exactly once, or was never handed out.
//   3. A group's promises never exceed the free blocks of its own slabs, and it keeps a wholly
//      free slab only while its promises need it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "base/result.h"
#include "kv/block_store.h"
#include "kv/snapshot.h"
#include "kvern/kv_store.h"

namespace kvern::kv {

// Names a block of one pool for as long as it is active or cached.
enum class BlockId : uint32_t {};

inline constexpr size_t kMaxGroups = 4;

// Two huge pages: what the store is asked for at once, at least.
inline constexpr size_t kDefaultSlabBytes = size_t{4} << 20;

struct StateCounts {
  size_t active = 0;
  size_t cached = 0;
  size_t reserved = 0;
  size_t free = 0;

  size_t Sum() const { return active + cached + reserved + free; }
};

struct PoolStats {
  StateCounts bytes;  // sums to budget_bytes()
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
  Status Reserve(GroupId group, size_t num_blocks);

  // Takes back promises that are not needed. REQUIRES: that many are outstanding.
  void Unreserve(GroupId group, size_t num_blocks);

  // Turns one promise into a zeroed block with one reference. REQUIRES: a promise is outstanding.
  BlockId Take(GroupId group);

  // Reserve(group, 1), then Take(group).
  Result<BlockId> Allocate(GroupId group);

  // Another holder of an active or cached block.
  void Retain(BlockId id);

  // One holder fewer; without the last one the block is cached if published, else free.
  void Release(BlockId id);

  // Makes an active block's bytes final. REQUIRES: not published.
  void Publish(BlockId id);

  // The index forgets a block; if it was cached it is free. REQUIRES: published.
  void Unpublish(BlockId id);

  std::byte* Address(BlockId block) const;
  uint32_t num_references(BlockId block) const { return blocks_[Index(block)].num_references; }
  bool is_published(BlockId block) const { return blocks_[Index(block)].is_published; }
  // Held once and not published: the holder may write. Any other write must copy first.
  bool is_writable(BlockId block) const {
    return num_references(block) == 1 && !is_published(block);
  }

  PoolStats stats() const { return stats_.Read(); }
  size_t budget_bytes() const { return budget_bytes_; }
  size_t num_blocks(GroupId group) const { return BlocksIn(budget_bytes_, group); }
  const GroupSpec& group(GroupId group) const { return groups_[Index(group)].spec; }
  size_t num_groups() const { return groups_.size(); }
  BlockStore* store() const { return store_; }

  // Aborts with a message if an invariant does not hold. O(blocks); for tests and debug builds.
  void CheckInvariants() const;

 private:
  using SlabList = std::list<uint32_t>;

  struct Block {
    uint32_t num_references = 0;
    uint32_t next_freed = 0;  // valid while free: the block freed before this one, in its slab
    bool is_published = false;
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
    SlabList::iterator place;  // its node, in one of the lists below

    uint32_t num_free() const { return capacity - num_opened + num_freed; }
  };

  struct Group {
    GroupSpec spec;
    size_t num_active = 0;
    size_t num_cached = 0;
    size_t num_promised = 0;
    size_t num_free = 0;  // in its own slabs, promised ones included
    SlabList full;        // no block free
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
  Status AssignSlab(GroupId group);
  void ReturnSpareSlabs(Group& group);
  SlabList& ListOf(const Slab& slab) { return ListIn(groups_[Index(slab.group)], slab); }
  BlockId PopFree(Slab& slab);
  void PushFree(BlockId block);
  PoolStats CountStats() const;
  void WriteStats() { stats_.Write(CountStats()); }
  void CheckSlab(uint32_t slab_index) const;

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
  Snapshot<PoolStats> stats_;
};

}  // namespace kvern::kv
