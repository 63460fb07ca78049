// EvictionHistory: a bounded memory of which blocks were evicted, when and by what (rule K11).
//
// Blocks are known by the chain hash of the text up to their end. The oldest record goes when the
// ring is full; a text that was evicted twice has its newest. One writer thread; Find() may be
// called by any number of readers while nobody writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kvern/kv_report.h"

namespace kvern::kv {

class EvictionHistory {
 public:
  struct Record {
    uint64_t chain;
    int64_t when_us;
    EvictionCause cause;
  };

  explicit EvictionHistory(size_t capacity) : ring_(capacity) { places_.reserve(capacity); }

  void Add(const Record& record) {
    if (ring_.empty()) {
      has_forgotten_ = true;
      return;
    }
    if (num_added_ >= ring_.size()) Forget(num_added_ % ring_.size());
    ring_[num_added_ % ring_.size()] = record;
    places_[record.chain] = num_added_++;
  }

  std::optional<Record> Find(uint64_t chain) const {
    const auto place = places_.find(chain);
    if (place == places_.end()) return std::nullopt;
    return ring_[place->second % ring_.size()];
  }

  // Whether what is not found may have been evicted all the same.
  bool has_forgotten() const { return has_forgotten_; }

  // An estimate of what the map and the ring take.
  size_t bytes() const {
    constexpr size_t kMapEntryBytes = 32;
    return ring_.capacity() * (sizeof(Record) + kMapEntryBytes);
  }

 private:
  void Forget(size_t index) {
    has_forgotten_ = true;
    const auto place = places_.find(ring_[index].chain);
    // A newer record of the same text stays.
    if (place != places_.end() && place->second % ring_.size() == index &&
        place->second + ring_.size() == num_added_) {
      places_.erase(place);
    }
  }

  std::vector<Record> ring_;
  std::unordered_map<uint64_t, size_t> places_;  // chain → number of the record
  size_t num_added_ = 0;
  bool has_forgotten_ = false;
};

}  // namespace kvern::kv
