// PairMerger: merges neighbours, the best pair first, until no pair can merge.
//
// Both tokenizer families are this one loop: they differ in what a pair is worth. Among equal pairs
// the leftmost goes first. n values cost at most 3n lookups and O(n log n) time, whatever the
// text. Reusable; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace kvern::text {

// What two neighbours would become. The lowest rank merges first.
template <typename Value>
struct PairMerge {
  uint32_t rank;
  Value value;
};

template <typename Value>
class PairMerger {
 public:
  // Replaces `values` by what is left after all merges. find(left, right) gives the merge of two
  // neighbours as an optional PairMerge. Returns how often it asked.
  // REQUIRES: fewer than 2³² values.
  template <typename Find>
  size_t Run(std::vector<Value>& values, Find find) {
    Start(values);
    size_t num_lookups = 0;
    // Brings a node's merge up to date. Only the latest merge of a node can still happen, so the
    // heap needs no more than its rank and place; what was pushed earlier is skipped when it shows.
    const auto consider = [&](uint32_t left) {
      Node& node = nodes_[left];
      node.merge.reset();
      if (node.next == nodes_.size()) return false;
      ++num_lookups;
      node.merge = find(node.value, nodes_[node.next].value);
      if (node.merge) heap_.push_back(uint64_t{node.merge->rank} << 32 | left);
      return node.merge.has_value();
    };
    const auto consider_again = [&](uint32_t left) {
      if (consider(left)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };

    for (uint32_t i = 0; i < nodes_.size(); ++i) consider(i);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
      const auto left = static_cast<uint32_t>(heap_.back());
      heap_.pop_back();
      if (!nodes_[left].merge || nodes_[left].merge->rank != rank) continue;
      JoinWithNext(left);
      if (left > 0) consider_again(nodes_[left].previous);
      consider_again(left);
    }

    values.clear();
    for (uint32_t i = 0; i < nodes_.size(); i = nodes_[i].next) values.push_back(nodes_[i].value);
    return num_lookups;
  }

 private:
  struct Node {
    Value value;
    uint32_t previous;
    uint32_t next;                          // the number of nodes at the end
    std::optional<PairMerge<Value>> merge;  // with the next node; none for one that was merged away
  };

  void Start(const std::vector<Value>& values) {
    heap_.clear();
    nodes_.clear();
    nodes_.reserve(values.size());
    for (uint32_t i = 0; i < values.size(); ++i) {
      nodes_.push_back({values[i], i - 1, i + 1, std::nullopt});
    }
  }

  void JoinWithNext(uint32_t i) {
    Node& left = nodes_[i];
    Node& right = nodes_[left.next];
    left.value = left.merge->value;
    left.next = right.next;
    right.merge.reset();
    if (left.next < nodes_.size()) nodes_[left.next].previous = i;
  }

  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank, then node: the smallest on top
};

}  // namespace kvern::text
