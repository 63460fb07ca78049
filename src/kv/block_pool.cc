#include "kv/block_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace kvern::kv {
namespace {

// So that at most an eighth of a slab is too short for a block of any group.
constexpr size_t kMinBlocksPerSlab = 8;

size_t SlabBytes(const std::vector<GroupSpec>& groups, size_t min_bytes) {
  size_t largest = 0;
  for (const GroupSpec& group : groups) largest = std::max(largest, group.block_bytes);
  if (groups.size() > 1) return std::max(min_bytes, largest * kMinBlocksPerSlab);
  return (min_bytes + largest - 1) / largest * largest;
}

}  // namespace

BlockPool::BlockPool(BlockStore* store, size_t budget_bytes, const std::vector<GroupSpec>& groups,
                     size_t min_slab_bytes)
    : store_(store), slab_bytes_(SlabBytes(groups, min_slab_bytes)) {
  CHECK(!groups.empty() && groups.size() <= kMaxGroups);
  size_t smallest = slab_bytes_;
  for (const GroupSpec& spec : groups) {
    CHECK(spec.block_bytes > 0 && spec.block_bytes % kBlockAlignment == 0);
    CHECK(spec.block_tokens > 0);
    smallest = std::min(smallest, spec.block_bytes);
  }
  groups_.resize(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) groups_[i].spec = groups[i];

  slab_stride_ = slab_bytes_ / smallest;
  budget_bytes_ = budget_bytes - budget_bytes % (groups.size() == 1 ? smallest : slab_bytes_);
  unassigned_bytes_ = budget_bytes_;
  slabs_.resize((budget_bytes_ + slab_bytes_ - 1) / slab_bytes_);
  CHECK(slabs_.size() * slab_stride_ <= std::numeric_limits<uint32_t>::max());
  blocks_.resize(slabs_.size() * slab_stride_);
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    slabs_[i].bytes = std::min(slab_bytes_, budget_bytes_ - i * slab_bytes_);
    slabs_[i].place = unassigned_.insert(unassigned_.end(), i);
  }
  CountUnassigned();
  WriteStats();
}

BlockPool::~BlockPool() {
  for (const Group& group : groups_) CHECK(group.num_active == 0);
  for (const Slab& slab : slabs_) {
    if (!slab.memory.empty()) store_->Free(slab.memory);
  }
}

Status BlockPool::Reserve(GroupId group_id, size_t num_blocks, OwnerId owner) {
  Group& group = groups_[Index(group_id)];
  const size_t available = group.num_free - group.num_promised + group.num_unassigned;
  if (num_blocks > available) {
    return Errorf(ErrorCode::kOutOfMemory,
                  "KV memory: {} blocks of {} bytes needed, {} free of {}: use a larger budget or "
                  "fewer and shorter sequences",
                  num_blocks, group.spec.block_bytes, available, this->num_blocks(group_id));
  }
  while (group.num_free - group.num_promised < num_blocks) {
    if (Status status = AssignSlab(group_id); !status.ok()) {
      ReturnSpareSlabs(group);
      WriteStats();  // slabs that were mapped before the refusal stay mapped
      return status;
    }
  }
  CountPromised(group, owner, static_cast<ptrdiff_t>(num_blocks));
  ReturnSpareSlabs(group);  // a larger slab may have made a smaller one spare
  WriteStats();
  return {};
}

void BlockPool::Unreserve(GroupId group_id, size_t num_blocks, OwnerId owner) {
  Group& group = groups_[Index(group_id)];
  CountPromised(group, owner, -static_cast<ptrdiff_t>(num_blocks));
  ReturnSpareSlabs(group);
  WriteStats();
}

bool BlockPool::CanReserve(const BlockCounts& num_blocks) const {
  if (groups_.size() == 1) {
    const Group& group = groups_[0];
    return num_blocks[0] <= group.num_free - group.num_promised + group.num_unassigned;
  }
  BlockCounts spare = {};
  for (size_t i = 0; i < groups_.size(); ++i)
    spare[i] = groups_[i].num_free - groups_[i].num_promised;
  return SlabsFor(num_blocks, spare) <= unassigned_.size();
}

bool BlockPool::CouldReserve(const BlockCounts& num_blocks) const {
  if (groups_.size() == 1) {
    BlockCounts beyond_cached = num_blocks;
    beyond_cached[0] -= std::min(beyond_cached[0], groups_[0].num_cached);
    return CanReserve(beyond_cached);
  }
  // Every slab without active blocks could serve any group; in the others only their own.
  size_t num_slabs = unassigned_.size();
  BlockCounts room = {}, promised = {};
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    for (const SlabList* list : {&group.full, &group.partial, &group.empty}) {
      for (const uint32_t slab : *list) {
        if (slabs_[slab].num_active == 0) {
          ++num_slabs;
        } else {
          room[i] += slabs_[slab].capacity - slabs_[slab].num_active;
        }
      }
    }
    promised[i] = num_blocks[i] + group.num_promised;
  }
  return SlabsFor(promised, room) <= num_slabs;
}

size_t BlockPool::SlabsFor(const BlockCounts& num_blocks, const BlockCounts& spare) const {
  size_t num_slabs = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const size_t missing = num_blocks[i] - std::min(num_blocks[i], spare[i]);
    const size_t per_slab = slab_bytes_ / groups_[i].spec.block_bytes;
    num_slabs += (missing + per_slab - 1) / per_slab;
  }
  return num_slabs;
}

BlockId BlockPool::Take(GroupId group_id, OwnerId owner) {
  Group& group = groups_[Index(group_id)];
  CountPromised(group, owner, -1);
  // Partly used slabs first, so that empty ones can go to other groups.
  Slab& slab = slabs_[group.partial.empty() ? group.empty.front() : group.partial.front()];
  const BlockId block = PopFree(slab);
  blocks_[Index(block)].num_references = 1;
  blocks_[Index(block)].owner = owner;
  --group.num_free;
  Count(block, Held::kActive, +1);
  WriteStats();
  return block;
}

Result<BlockId> BlockPool::Allocate(GroupId group) {
  KVERN_RETURN_IF_ERROR(Reserve(group, 1));
  return Take(group);
}

// Counts a run of blocks of one slab and owner that change their state together, as those of a text
// commonly are.
class BlockPool::Shift {
 public:
  Shift(BlockPool* pool, Held from, Held to) : pool_(pool), from_(from), to_(to) {}

  void Add(BlockId id, OwnerId owner) {
    const size_t index = Index(id);
    if (index < begin_ || index >= end_ || owner != owner_) {
      Flush();
      begin_ = index / pool_->slab_stride_ * pool_->slab_stride_;
      end_ = begin_ + pool_->slab_stride_;
      owner_ = owner;
    }
    ++count_;
  }

  void Flush() {
    if (count_ == 0) return;
    Slab& slab = pool_->slabs_[begin_ / pool_->slab_stride_];
    pool_->Count(slab, owner_, from_, -count_);
    pool_->Count(slab, owner_, to_, count_);
    count_ = 0;
  }

 private:
  BlockPool* const pool_;
  const Held from_, to_;
  size_t begin_ = 0, end_ = 0;  // ids of the slab
  OwnerId owner_{};
  int count_ = 0;
};

void BlockPool::Retain(std::span<const BlockId> ids) {
  Shift shift(this, Held::kCached, Held::kActive);
  bool changed = false;
  for (const BlockId id : ids) {
    Block& block = blocks_[Index(id)];
    CHECK(block.num_references > 0 || block.is_published);
    if (++block.num_references > 1) continue;
    shift.Add(id, block.owner);
    changed = true;
  }
  shift.Flush();
  if (changed) WriteStats();
}

void BlockPool::Release(std::span<const BlockId> ids) {
  Shift shift(this, Held::kActive, Held::kCached);
  bool changed = false;
  for (const BlockId id : ids) {
    Block& block = blocks_[Index(id)];
    CHECK(block.num_references > 0);
    if (--block.num_references > 0) continue;
    if (block.is_published) {
      shift.Add(id, block.owner);
      if (on_cached_) on_cached_(id);
    } else {
      Count(SlabOf(id), block.owner, Held::kActive, -1);
      PushFree(id);
    }
    changed = true;
  }
  shift.Flush();
  if (changed) WriteStats();
}

void BlockPool::Publish(BlockId id) {
  Block& block = blocks_[Index(id)];
  CHECK(block.num_references > 0 && !block.is_published);
  block.is_published = true;
}

void BlockPool::Unpublish(BlockId id) {
  Block& block = blocks_[Index(id)];
  CHECK(block.is_published);
  block.is_published = false;
  if (block.num_references > 0) return;
  Count(id, Held::kCached, -1);
  PushFree(id);
  WriteStats();
}

std::optional<std::vector<BlockId>> BlockPool::FindSpareSlab(GroupId wanting) const {
  const Slab* best = nullptr;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i == Index(wanting)) continue;
    const Group& group = groups_[i];
    for (const uint32_t index : group.partial) {
      const Slab& slab = slabs_[index];
      const size_t num_free_elsewhere = group.num_free - slab.num_free();
      const size_t num_used = slab.capacity - slab.num_free();
      if (slab.num_active > 0 || num_free_elsewhere < num_used + group.num_promised) continue;
      if (best == nullptr || num_used < best->capacity - best->num_free()) best = &slab;
    }
  }
  if (best == nullptr) return std::nullopt;
  std::vector<BlockId> cached;
  const size_t first = static_cast<size_t>(best - slabs_.data()) * slab_stride_;
  for (uint32_t i = 0; i < best->num_opened; ++i) {
    if (blocks_[first + i].is_published) cached.push_back(static_cast<BlockId>(first + i));
  }
  return cached;
}

BlockId BlockPool::Move(BlockId id) {
  Group& group = GroupOf(id);
  const Slab& from = SlabOf(id);
  CHECK(num_references(id) == 0 && is_published(id));
  uint32_t to = 0;
  bool found = false;
  for (const SlabList* list : {&group.partial, &group.empty}) {
    for (const uint32_t slab : *list) {
      if (&slabs_[slab] == &from || found) continue;
      to = slab;
      found = true;
    }
  }
  CHECK(found);
  const BlockId moved = PopFree(slabs_[to]);
  --group.num_free;
  blocks_[Index(moved)].owner = blocks_[Index(id)].owner;
  blocks_[Index(moved)].is_published = true;
  Count(moved, Held::kCached, +1);
  store_->Copy(Address(moved), Address(id), group.spec.block_bytes);
  Unpublish(id);
  return moved;
}

NamespaceUsage BlockPool::usage(OwnerId owner) const {
  const std::lock_guard lock(owners_mutex_);
  const auto index = static_cast<size_t>(owner);
  if (index >= owners_.size()) return {};
  const auto read = [](const std::atomic<size_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  const Owner& counts = owners_[index];
  return {.active_bytes = read(counts.active_bytes),
          .cached_bytes = read(counts.cached_bytes),
          .reserved_bytes = read(counts.reserved_bytes),
          .peak_active_bytes = read(counts.peak_active_bytes),
          .peak_cached_bytes = read(counts.peak_cached_bytes)};
}

BlockPool::Owner& BlockPool::OwnerOf(OwnerId owner) {
  const auto index = static_cast<size_t>(owner);
  while (index >= owners_.size()) {
    const std::lock_guard lock(owners_mutex_);
    owners_.emplace_back();
  }
  return owners_[index];
}

void BlockPool::CountPromised(Group& group, OwnerId owner, ptrdiff_t change) {
  std::atomic<size_t>& bytes = OwnerOf(owner).reserved_bytes;
  const size_t promised = bytes.load(std::memory_order_relaxed);
  const size_t step = static_cast<size_t>(change) * group.spec.block_bytes;  // wraps
  CHECK(change >= 0 || promised >= size_t{0} - step);
  group.num_promised += static_cast<size_t>(change);
  bytes.store(promised + step, std::memory_order_relaxed);
}

void BlockPool::Count(BlockId id, Held state, int change) {
  Count(SlabOf(id), blocks_[Index(id)].owner, state, change);
}

void BlockPool::Count(Slab& slab, OwnerId owner_id, Held state, int change) {
  Group& group = groups_[Index(slab.group)];
  Owner& owner = OwnerOf(owner_id);
  const auto step = static_cast<size_t>(change);  // wraps: -1 is all ones
  const bool is_active = state == Held::kActive;
  (is_active ? group.num_active : group.num_cached) += step;
  if (is_active) slab.num_active += static_cast<uint32_t>(step);
  auto& bytes = is_active ? owner.active_bytes : owner.cached_bytes;
  auto& peak = is_active ? owner.peak_active_bytes : owner.peak_cached_bytes;
  const size_t now = bytes.load(std::memory_order_relaxed) + step * group.spec.block_bytes;
  bytes.store(now, std::memory_order_relaxed);
  if (now > peak.load(std::memory_order_relaxed)) peak.store(now, std::memory_order_relaxed);
}

std::byte* BlockPool::Address(BlockId block) const {
  const Slab& slab = SlabOf(block);
  const size_t index = Index(block) % slab_stride_;
  return slab.memory.data() + index * groups_[Index(slab.group)].spec.block_bytes;
}

// Whole slabs count by slab, a short last one by what it holds; `bytes` is a sum of slab sizes.
size_t BlockPool::BlocksIn(size_t bytes, GroupId group) const {
  const size_t block_bytes = groups_[Index(group)].spec.block_bytes;
  return bytes / slab_bytes_ * (slab_bytes_ / block_bytes) + bytes % slab_bytes_ / block_bytes;
}

// REQUIRES: a slab is unassigned.
Status BlockPool::AssignSlab(GroupId group_id) {
  Slab& slab = slabs_[unassigned_.front()];
  if (slab.memory.empty()) {
    KVERN_ASSIGN_OR_RETURN(slab.memory, store_->Allocate(slab.bytes));
    mapped_bytes_ += slab.memory.size();
  }
  Group& group = groups_[Index(group_id)];
  slab.group = group_id;
  slab.capacity = static_cast<uint32_t>(slab.bytes / group.spec.block_bytes);
  slab.num_opened = 0;
  slab.num_freed = 0;
  group.num_free += slab.capacity;
  group.empty.splice(group.empty.begin(), unassigned_, slab.place);
  unassigned_bytes_ -= slab.bytes;
  slack_bytes_ += slab.bytes % group.spec.block_bytes;
  CountUnassigned();
  return {};
}

void BlockPool::CountUnassigned() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].num_unassigned = BlocksIn(unassigned_bytes_, static_cast<GroupId>(i));
  }
}

void BlockPool::ReturnSpareSlabs(Group& group) {
  for (auto next = group.empty.begin(); next != group.empty.end();) {
    const Slab& slab = slabs_[*next++];
    if (group.num_free - slab.capacity < group.num_promised) continue;
    group.num_free -= slab.capacity;
    unassigned_bytes_ += slab.bytes;
    slack_bytes_ -= slab.bytes % group.spec.block_bytes;
    // To the front: mapped memory is used again before new memory is asked for.
    unassigned_.splice(unassigned_.begin(), group.empty, slab.place);
    CountUnassigned();
  }
}

// A zeroed block without references.
BlockId BlockPool::PopFree(Slab& slab) {
  SlabList& before = ListOf(slab);
  const size_t first = static_cast<size_t>(&slab - slabs_.data()) * slab_stride_;
  uint32_t index = slab.num_opened;
  if (slab.num_freed > 0) {
    index = slab.last_freed;
    slab.last_freed = blocks_[first + index].next_freed;
    --slab.num_freed;
  } else {
    ++slab.num_opened;
  }
  SlabList& after = ListOf(slab);
  after.splice(after.begin(), before, slab.place);

  const size_t block_bytes = groups_[Index(slab.group)].spec.block_bytes;
  const size_t begin = index * block_bytes;
  const size_t end = begin + block_bytes;
  if (begin < slab.dirty_bytes) {
    store_->Zero(slab.memory.data() + begin, std::min(end, slab.dirty_bytes) - begin);
  }
  slab.dirty_bytes = std::max(slab.dirty_bytes, end);
  return static_cast<BlockId>(first + index);
}

void BlockPool::PushFree(BlockId block) {
  Slab& slab = SlabOf(block);
  Group& group = GroupOf(block);
  SlabList& before = ListOf(slab);
  blocks_[Index(block)].next_freed = slab.last_freed;
  slab.last_freed = static_cast<uint32_t>(Index(block) % slab_stride_);
  ++slab.num_freed;
  ++group.num_free;
  SlabList& after = ListOf(slab);
  after.splice(after.begin(), before, slab.place);
  ReturnSpareSlabs(group);
}

void BlockPool::WriteStats() {
  PoolStats stats = CountStats();
  peak_bytes_.active = std::max(peak_bytes_.active, stats.bytes.active);
  peak_bytes_.cached = std::max(peak_bytes_.cached, stats.bytes.cached);
  peak_bytes_.reserved = std::max(peak_bytes_.reserved, stats.bytes.reserved);
  peak_bytes_.free = std::max(peak_bytes_.free, stats.bytes.free);
  stats.peak_bytes = peak_bytes_;
  stats_.Write(stats);
}

PoolStats BlockPool::CountStats() const {
  PoolStats stats;
  stats.bytes.reserved = slack_bytes_;
  stats.bytes.free = unassigned_bytes_;
  stats.mapped_bytes = mapped_bytes_;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const size_t block_bytes = group.spec.block_bytes;
    StateCounts& blocks = stats.blocks[i];
    blocks.active = group.num_active;
    blocks.cached = group.num_cached;
    blocks.reserved = group.num_promised;
    blocks.free = group.num_free - group.num_promised;
    stats.bytes.active += blocks.active * block_bytes;
    stats.bytes.cached += blocks.cached * block_bytes;
    stats.bytes.reserved += blocks.reserved * block_bytes;
    stats.bytes.free += blocks.free * block_bytes;
    blocks.free += group.num_unassigned;
  }
  return stats;
}

void BlockPool::CheckInvariants() const {
  CHECK(CountStats().bytes.Sum() == budget_bytes_);
  CHECK(stats().bytes.Sum() == budget_bytes_);
  size_t num_slabs = unassigned_.size();
  size_t unassigned_bytes = 0;
  for (const uint32_t slab : unassigned_) unassigned_bytes += slabs_[slab].bytes;
  CHECK(unassigned_bytes == unassigned_bytes_);
  for (const Group& group : groups_) {
    CHECK(group.num_promised <= group.num_free);
    size_t num_free = 0, num_blocks = 0;
    for (const SlabList* list : {&group.full, &group.partial, &group.empty}) {
      num_slabs += list->size();
      for (const uint32_t slab : *list) {
        CheckSlab(slab);
        CHECK(&groups_[Index(slabs_[slab].group)] == &group);
        CHECK(list == &ListIn(group, slabs_[slab]));
        num_free += slabs_[slab].num_free();
        num_blocks += slabs_[slab].capacity;
        CHECK(list != &group.empty || group.num_free - slabs_[slab].capacity < group.num_promised);
      }
    }
    CHECK(num_free == group.num_free);
    CHECK(num_blocks == group.num_active + group.num_cached + group.num_free);
  }
  CHECK(num_slabs == slabs_.size());
  CheckOwners();
}

void BlockPool::CheckOwners() const {
  std::vector<StateCounts> bytes(owners_.size());
  for (const Group& group : groups_) {
    for (const SlabList* list : {&group.full, &group.partial}) {
      for (const uint32_t slab : *list) {
        for (size_t i = 0; i < slabs_[slab].num_opened; ++i) {
          const Block& block = blocks_[slab * slab_stride_ + i];
          if (block.num_references == 0 && !block.is_published) continue;
          StateCounts& owner = bytes[static_cast<size_t>(block.owner)];
          (block.num_references > 0 ? owner.active : owner.cached) += group.spec.block_bytes;
        }
      }
    }
  }
  size_t promised_bytes = 0;
  for (const Group& group : groups_) promised_bytes += group.num_promised * group.spec.block_bytes;
  for (const Owner& owner : owners_) promised_bytes -= owner.reserved_bytes;
  CHECK(promised_bytes == 0);
  for (size_t i = 0; i < owners_.size(); ++i) {
    CHECK(bytes[i].active == owners_[i].active_bytes.load(std::memory_order_relaxed));
    CHECK(bytes[i].cached == owners_[i].cached_bytes.load(std::memory_order_relaxed));
  }
}

void BlockPool::CheckSlab(uint32_t slab_index) const {
  const Slab& slab = slabs_[slab_index];
  const Block* const blocks = &blocks_[slab_index * slab_stride_];
  uint32_t num_active = 0;
  for (uint32_t i = 0; i < slab.capacity; ++i) num_active += blocks[i].num_references > 0;
  CHECK(num_active == slab.num_active);
  std::vector<bool> is_free(slab.capacity, false);
  uint32_t freed = slab.last_freed;
  for (uint32_t i = 0; i < slab.num_freed; ++i, freed = blocks[freed].next_freed) {
    CHECK(freed < slab.num_opened && !is_free[freed]);
    is_free[freed] = true;
  }
  std::fill(is_free.begin() + slab.num_opened, is_free.end(), true);
  for (uint32_t i = 0; i < slab.capacity; ++i) {
    CHECK(is_free[i] == (blocks[i].num_references == 0 && !blocks[i].is_published));
  }
}

}  // namespace kvern::kv
