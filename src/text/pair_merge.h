// PairMerger: merges neighbours, the best pair first, until no pair can merge.
//
// Both tokenizer families are this one loop: they differ in what a pair is worth. Among equal pairs
// the leftmost goes first. n values cost at most 3n lookups and O(n log n) time, whatever the
// text. Reusable; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvern::text {

// What two neighbours would become. The lowest key merges first.
template <typename Key, typename Value>
struct PairMerge {
  Key key;
  Value value;
};

template <typename Key, typename Value>
class PairMerger {
 public:
  // Replaces `values` by what is left after all merges. find(left, right) gives the merge of two
  // neighbours as an optional PairMerge. Returns how often it asked.
  // REQUIRES: fewer than 2³² values.
  template <typename Find>
  size_t Run(std::vector<Value>& values, Find find) {
    Start(values);
    size_t num_lookups = 0;
    const auto consider = [&](uint32_t left) {
      const uint32_t right = nodes_[left].next;
      if (right == nodes_.size()) return;
      ++num_lookups;
      const std::optional<PairMerge<Key, Value>> merge =
          find(nodes_[left].value, nodes_[right].value);
      if (!merge) return;
      heap_.push_back({merge->key, left, nodes_[left].span + nodes_[right].span, merge->value});
      std::push_heap(heap_.begin(), heap_.end(), ComesLater);
    };

    for (uint32_t i = 0; i < nodes_.size(); ++i) consider(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), ComesLater);
      const Candidate best = heap_.back();
      heap_.pop_back();
      if (!IsCurrent(best)) continue;
      Join(best);
      if (best.left > 0) consider(nodes_[best.left].previous);
      consider(best.left);
    }

    values.clear();
    for (uint32_t i = 0; i < nodes_.size(); i = nodes_[i].next) values.push_back(nodes_[i].value);
    return num_lookups;
  }

 private:
  struct Node {
    Value value;
    uint32_t span;  // initial values that it covers; 0: merged away
    uint32_t previous;
    uint32_t next;  // the number of nodes at the end
  };
  struct Candidate {
    Key key;
    uint32_t left;
    uint32_t span;
    Value value;
  };

  static bool ComesLater(const Candidate& a, const Candidate& b) {
    return a.key != b.key ? b.key < a.key : b.left < a.left;
  }

  void Start(const std::vector<Value>& values) {
    heap_.clear();
    nodes_.clear();
    nodes_.reserve(values.size());
    for (uint32_t i = 0; i < values.size(); ++i) nodes_.push_back({values[i], 1, i - 1, i + 1});
  }

  // The span of a node and its neighbour only ever grows, so an equal span is the same pair.
  bool IsCurrent(const Candidate& candidate) const {
    const Node& left = nodes_[candidate.left];
    return left.span > 0 && left.next < nodes_.size() &&
           left.span + nodes_[left.next].span == candidate.span;
  }

  void Join(const Candidate& merge) {
    Node& left = nodes_[merge.left];
    Node& right = nodes_[left.next];
    left.value = merge.value;
    left.span = merge.span;
    left.next = right.next;
    right.span = 0;
    if (left.next < nodes_.size()) nodes_[left.next].previous = merge.left;
  }

  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace kvern::text
