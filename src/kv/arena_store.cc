#include "kv/arena_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "base/result.h"

namespace kvern::kv {

Result<std::unique_ptr<ArenaStore>> ArenaStore::Create(size_t budget_bytes, ArenaFit fit) {
  budget_bytes -= budget_bytes % kBlockAlignment;
  CHECK(budget_bytes > 0);
  void* const base =
      mmap(nullptr, budget_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Errorf(ErrorCode::kOutOfMemory,
                  "the system has no {} bytes of address space: use a smaller budget",
                  budget_bytes);
  }
  return std::unique_ptr<ArenaStore>(
      new ArenaStore(static_cast<std::byte*>(base), budget_bytes, fit));
}

ArenaStore::ArenaStore(std::byte* base, size_t budget_bytes, ArenaFit fit)
    : base_(base), budget_bytes_(budget_bytes), fit_(fit) {
  AddHole(0, budget_bytes);
}

ArenaStore::~ArenaStore() {
  CHECK(regions_.empty());
  munmap(base_, budget_bytes_);
}

Result<Region> ArenaStore::Allocate(size_t bytes) {
  CHECK(bytes > 0);
  const size_t rest = bytes % kBlockAlignment;
  const size_t rounded = rest == 0 ? bytes : bytes + (kBlockAlignment - rest);
  // Rounding wraps only far beyond any budget.
  const auto hole = rounded < bytes ? holes_.end() : FindHole(rounded);
  if (hole == holes_.end()) {
    ++counts_.num_refused;
    counts_.last_refused_bytes = bytes;
    const ArenaStats now = stats();
    return Errorf(ErrorCode::kOutOfMemory,
                  "KV memory: no hole of {} bytes: {} are free, the largest hole has {}: use a "
                  "larger budget or fewer and shorter sequences",
                  bytes, now.free_bytes, now.largest_hole_bytes);
  }
  const auto [offset, hole_bytes] = *hole;
  RemoveHole(hole);
  if (hole_bytes > rounded) AddHole(offset + rounded, hole_bytes - rounded);
  regions_[offset] = rounded;
  bytes_held_.fetch_add(rounded, std::memory_order_relaxed);
  return Region(base_ + offset, rounded);
}

void ArenaStore::Free(Region region) {
  size_t offset = static_cast<size_t>(region.data() - base_);
  size_t bytes = region.size();
  const auto entry = regions_.find(offset);
  CHECK(entry != regions_.end() && entry->second == bytes);
  regions_.erase(entry);
  bytes_held_.fetch_sub(bytes, std::memory_order_relaxed);

  const auto after = holes_.lower_bound(offset);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      RemoveHole(before);
    }
  }
  if (after != holes_.end() && offset + bytes == after->first) {
    bytes += after->second;
    RemoveHole(after);
  }
  AddHole(offset, bytes);
}

void ArenaStore::AddHole(size_t offset, size_t bytes) {
  holes_[offset] = bytes;
  holes_by_size_.emplace(bytes, offset);
}

void ArenaStore::RemoveHole(Extents::iterator hole) {
  holes_by_size_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

void ArenaStore::Zero(std::byte*, size_t bytes) { counts_.bytes_zeroed += bytes; }

void ArenaStore::Copy(std::byte*, const std::byte*, size_t bytes) { counts_.bytes_copied += bytes; }

void ArenaStore::CopyRows(GroupId, std::byte*, const std::byte*, uint32_t num_tokens) {
  counts_.rows_copied += num_tokens;
}

ArenaStore::Extents::iterator ArenaStore::FindHole(size_t bytes) {
  const auto smallest = holes_by_size_.lower_bound({bytes, 0});
  if (smallest == holes_by_size_.end()) return holes_.end();
  if (fit_ == ArenaFit::kBest) return holes_.find(smallest->second);
  return std::find_if(holes_.begin(), holes_.end(),
                      [bytes](const auto& hole) { return hole.second >= bytes; });
}

ArenaStats ArenaStore::stats() const {
  ArenaStats stats = counts_;
  stats.free_bytes = budget_bytes_ - bytes_held();
  stats.num_holes = holes_.size();
  if (!holes_.empty()) stats.largest_hole_bytes = holes_by_size_.rbegin()->first;
  return stats;
}

void ArenaStore::CheckInvariants() const {
  auto hole = holes_.begin();
  auto region = regions_.begin();
  size_t offset = 0, held = 0;
  bool was_hole = false;
  while (offset < budget_bytes_) {
    const bool is_hole = hole != holes_.end() && hole->first == offset;
    CHECK(is_hole || (region != regions_.end() && region->first == offset));
    CHECK(!(is_hole && was_hole));
    was_hole = is_hole;
    if (is_hole) {
      CHECK(holes_by_size_.contains({hole->second, hole->first}));
      offset += hole++->second;
    } else {
      held += region->second;
      offset += region++->second;
    }
  }
  CHECK(offset == budget_bytes_ && held == bytes_held());
  CHECK(hole == holes_.end() && region == regions_.end());
  CHECK(holes_by_size_.size() == holes_.size());
}

}  // namespace kvern::kv
