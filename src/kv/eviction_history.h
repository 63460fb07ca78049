// EvictionHistory: a bounded memory of which blocks were evicted, when and by what (rule K11).
//
// Blocks are known by the chain hash of the text up to their end. The oldest record goes when the
// ring is full; a text that was evicted twice has its newest. One writer thread; Find() may be
// called by any number of readers while nobody writes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
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

  explicit EvictionHistory(size_t capacity)
      : ring_(capacity), table_(std::bit_ceil(capacity * 2 + 1), kEmpty) {}

  void Add(const Record& record) {
    if (ring_.empty()) {
      has_forgotten_ = true;
      return;
    }
    const auto index = static_cast<uint32_t>(num_added_ % ring_.size());
    if (num_added_ >= ring_.size()) Forget(index);
    ++num_added_;
    ring_[index] = record;
    size_t place = Home(record.chain);
    while (table_[place] != kEmpty && ring_[table_[place]].chain != record.chain) {
      place = Next(place);
    }
    table_[place] = index;
  }

  std::optional<Record> Find(uint64_t chain) const {
    for (size_t place = Home(chain); table_[place] != kEmpty; place = Next(place)) {
      if (ring_[table_[place]].chain == chain) return ring_[table_[place]];
    }
    return std::nullopt;
  }

  // Whether what is not found may have been evicted all the same.
  bool has_forgotten() const { return has_forgotten_; }

  size_t bytes() const {
    return ring_.capacity() * sizeof(Record) + table_.capacity() * sizeof(uint32_t);
  }

 private:
  static constexpr uint32_t kEmpty = UINT32_MAX;

  size_t Home(uint64_t chain) const { return chain & (table_.size() - 1); }
  size_t Next(size_t place) const { return (place + 1) & (table_.size() - 1); }

  void Forget(uint32_t index) {
    has_forgotten_ = true;
    size_t hole = Home(ring_[index].chain);
    while (table_[hole] != kEmpty && table_[hole] != index) hole = Next(hole);
    if (table_[hole] == kEmpty) return;  // a newer record of the same text has its place
    // Closes the hole, so that a search that goes past it still finds what lies behind.
    for (size_t place = Next(hole); table_[place] != kEmpty; place = Next(place)) {
      const size_t home = Home(ring_[table_[place]].chain);
      const size_t mask = table_.size() - 1;
      if (((place - home) & mask) < ((place - hole) & mask)) continue;
      table_[hole] = table_[place];
      hole = place;
    }
    table_[hole] = kEmpty;
  }

  std::vector<Record> ring_;
  std::vector<uint32_t> table_;  // by chain, open addressing: index in the ring
  size_t num_added_ = 0;
  bool has_forgotten_ = false;
};

}  // namespace kvern::kv
