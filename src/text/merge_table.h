// MergeTable: which two symbols of byte-level BPE merge, in which order, into what.
//
// A hash table of fixed size: a lookup is one or two cache lines. Immutable once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "text/pair_merge.h"

namespace kvern::text {

using Symbol = uint32_t;

class MergeTable {
 public:
  explicit MergeTable(size_t max_merges) {
    size_t num_slots = 16;
    while (num_slots < 2 * max_merges) num_slots *= 2;
    slots_.resize(num_slots);
  }

  // The first merge of a pair counts. REQUIRES: called at most max_merges times.
  void Add(Symbol left, Symbol right, uint32_t rank, Symbol result) {
    Slot& slot = slots_[Find(left, right)];
    if (!slot.used) slot = {left, right, {rank, result}, true};
  }

  std::optional<PairMerge<Symbol>> Lookup(Symbol left, Symbol right) const {
    const Slot& slot = slots_[Find(left, right)];
    if (!slot.used) return std::nullopt;
    return slot.merge;
  }

 private:
  struct Slot {
    Symbol left;
    Symbol right;
    PairMerge<Symbol> merge;
    bool used = false;
  };

  // The pair's slot, or the free one where it would go.
  size_t Find(Symbol left, Symbol right) const {
    const uint64_t pair = uint64_t{left} << 32 | right;
    size_t i = (pair * 0x9E3779B97F4A7C15) >> 20 & (slots_.size() - 1);
    while (slots_[i].used && (slots_[i].left != left || slots_[i].right != right)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace kvern::text
