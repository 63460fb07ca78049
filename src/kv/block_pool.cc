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
  WriteStats();
}

BlockPool::~BlockPool() {
  for (const Group& group : groups_) CHECK(group.num_active == 0);
  for (const Slab& slab : slabs_) {
    if (!slab.memory.empty()) store_->Free(slab.memory);
  }
}

Status BlockPool::Reserve(GroupId group_id, size_t num_blocks) {
  Group& group = groups_[Index(group_id)];
  const size_t available =
      group.num_free - group.num_promised + BlocksIn(unassigned_bytes_, group_id);
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
  group.num_promised += num_blocks;
  WriteStats();
  return {};
}

void BlockPool::Unreserve(GroupId group_id, size_t num_blocks) {
  Group& group = groups_[Index(group_id)];
  CHECK(group.num_promised >= num_blocks);
  group.num_promised -= num_blocks;
  ReturnSpareSlabs(group);
  WriteStats();
}

BlockId BlockPool::Take(GroupId group_id) {
  Group& group = groups_[Index(group_id)];
  CHECK(group.num_promised > 0);
  // Partly used slabs first, so that empty ones can go to other groups.
  Slab& slab = slabs_[group.partial.empty() ? group.empty.front() : group.partial.front()];
  const BlockId block = PopFree(slab);
  blocks_[Index(block)].num_references = 1;
  --group.num_free;
  --group.num_promised;
  ++group.num_active;
  WriteStats();
  return block;
}

Result<BlockId> BlockPool::Allocate(GroupId group) {
  KVERN_RETURN_IF_ERROR(Reserve(group, 1));
  return Take(group);
}

void BlockPool::Retain(BlockId id) {
  Block& block = blocks_[Index(id)];
  CHECK(block.num_references > 0 || block.is_published);
  if (++block.num_references > 1) return;
  Group& group = GroupOf(id);
  --group.num_cached;
  ++group.num_active;
  WriteStats();
}

void BlockPool::Release(BlockId id) {
  Block& block = blocks_[Index(id)];
  CHECK(block.num_references > 0);
  if (--block.num_references > 0) return;
  Group& group = GroupOf(id);
  --group.num_active;
  if (block.is_published) {
    ++group.num_cached;
  } else {
    PushFree(id);
  }
  WriteStats();
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
  --GroupOf(id).num_cached;
  PushFree(id);
  WriteStats();
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
  return {};
}

void BlockPool::ReturnSpareSlabs(Group& group) {
  while (!group.empty.empty()) {
    const Slab& slab = slabs_[group.empty.front()];
    if (group.num_free - slab.capacity < group.num_promised) return;
    group.num_free -= slab.capacity;
    unassigned_bytes_ += slab.bytes;
    slack_bytes_ -= slab.bytes % group.spec.block_bytes;
    // To the front: mapped memory is used again before new memory is asked for.
    unassigned_.splice(unassigned_.begin(), group.empty, slab.place);
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
    blocks.free += BlocksIn(unassigned_bytes_, static_cast<GroupId>(i));
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
}

void BlockPool::CheckSlab(uint32_t slab_index) const {
  const Slab& slab = slabs_[slab_index];
  const Block* const blocks = &blocks_[slab_index * slab_stride_];
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
