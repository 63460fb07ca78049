// ItemHeap: items in the order of their entries, the least first.
//
// An Entry has `uint32_t item` and a strict order, <. The heap has four children a node, with the
// place of every item beside it. Items are dense ids: 4 bytes are kept for every id up to the
// largest one seen, and sizeof(Entry) for every item that is in.
//
// One thread. Insert() is O(1) for an entry above all others, else O(log n), as is Erase().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace kvern::kv {

// The order of two serial numbers that wrap around: right for two that are less than 2³¹ apart. It
// breaks ties between candidates of one microsecond, so four bytes of it are enough.
inline bool WasAddedBefore(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

template <typename Entry>
class ItemHeap {
 public:
  bool empty() const { return heap_.empty(); }

  // REQUIRES: not empty().
  const Entry& least() const { return heap_.front(); }

  // REQUIRES: its item is not in.
  void Insert(const Entry& entry) {
    if (entry.item >= places_.size()) places_.resize(size_t{entry.item} + 1, kNowhere);
    CHECK(places_[entry.item] == kNowhere);
    heap_.push_back(entry);
    SiftUp(heap_.size() - 1, entry);
  }

  // REQUIRES: `item` is in.
  void Erase(uint32_t item) {
    CHECK(item < places_.size() && places_[item] != kNowhere);
    const size_t place = places_[item];
    places_[item] = kNowhere;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    if (place > 0 && last < heap_[Parent(place)]) {
      SiftUp(place, last);
    } else {
      SiftDown(place, last);
    }
  }

 private:
  static constexpr size_t kNumChildren = 4;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  static size_t Parent(size_t place) { return (place - 1) / kNumChildren; }

  void Put(size_t place, const Entry& entry) {
    heap_[place] = entry;
    places_[entry.item] = static_cast<uint32_t>(place);
  }

  void SiftUp(size_t hole, const Entry& entry) {
    while (hole > 0 && entry < heap_[Parent(hole)]) {
      Put(hole, heap_[Parent(hole)]);
      hole = Parent(hole);
    }
    Put(hole, entry);
  }

  void SiftDown(size_t hole, const Entry& entry) {
    for (;;) {
      const size_t first = hole * kNumChildren + 1;
      if (first >= heap_.size()) break;
      const size_t end = std::min(first + kNumChildren, heap_.size());
      size_t least = first;
      for (size_t child = first + 1; child < end; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (entry < heap_[least]) break;
      Put(hole, heap_[least]);
      hole = least;
    }
    Put(hole, entry);
  }

  std::vector<Entry> heap_;
  std::vector<uint32_t> places_;  // by item
};

}  // namespace kvern::kv
