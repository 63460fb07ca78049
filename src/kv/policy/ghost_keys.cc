#include "kv/policy/ghost_keys.h"

#include <utility>

#include "base/check.h"

namespace kvern::kv {

void GhostKeys::Insert(uint64_t key, size_t max_keys) {
  CHECK(max_keys > 0);
  if (Find(key)) return;
  while (end_ - begin_ >= max_keys) ForgetOldest();
  if (end_ - begin_ == ring_.size()) Grow();
  const uint32_t place = Place(end_++);
  ring_[place] = key;
  Link(place);
}

bool GhostKeys::Take(uint64_t key) {
  const std::optional<size_t> slot = Find(key);
  if (!slot) return false;
  Unlink(*slot);
  return true;
}

// Keys may be small numbers or share their low bits: the product's upper half has seen all bits.
size_t GhostKeys::Home(uint64_t key) const {
  return (key * 0x9E3779B97F4A7C15 >> 32) & (index_.size() - 1);
}

std::optional<size_t> GhostKeys::Find(uint64_t key) const {
  for (size_t slot = Home(key);; slot = (slot + 1) & (index_.size() - 1)) {
    if (index_[slot] == kEmpty) return std::nullopt;
    if (ring_[index_[slot]] == key) return slot;
  }
}

void GhostKeys::Link(uint32_t place) {
  size_t slot = Home(ring_[place]);
  while (index_[slot] != kEmpty) slot = (slot + 1) & (index_.size() - 1);
  index_[slot] = place;
}

// Moves back what probed past the hole, so that no probe ends early.
void GhostKeys::Unlink(size_t slot) {
  const size_t mask = index_.size() - 1;
  size_t hole = slot;
  for (size_t next = (hole + 1) & mask; index_[next] != kEmpty; next = (next + 1) & mask) {
    const size_t home = Home(ring_[index_[next]]);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    index_[hole] = index_[next];
    hole = next;
  }
  index_[hole] = kEmpty;
}

void GhostKeys::ForgetOldest() {
  const uint32_t place = Place(begin_++);
  const std::optional<size_t> slot = Find(ring_[place]);
  // A key that was taken, and perhaps came again, is not this place's any more.
  if (slot && index_[*slot] == place) Unlink(*slot);
}

void GhostKeys::Grow() {
  GhostKeys grown(2 * ring_.size());
  grown.begin_ = begin_;
  grown.end_ = end_;
  for (uint64_t turn = begin_; turn < end_; ++turn) {
    const uint64_t key = ring_[Place(turn)];
    grown.ring_[grown.Place(turn)] = key;
    const std::optional<size_t> slot = Find(key);
    if (slot && index_[*slot] == Place(turn)) grown.Link(grown.Place(turn));
  }
  *this = std::move(grown);
}

}  // namespace kvern::kv
