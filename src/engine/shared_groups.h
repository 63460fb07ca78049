// SharedGroups: which slices of a step read the same KV chunks, so that the executor can read each
// of them once for all (rule G5).
//
// A chunk is shared where its blocks are the same ones in every layer group and all of it lies
// before the slices' first positions (rule N3). A slice joins at most one group, with its first
// chunks; of all such groupings, the one found saves the most chunk reads. Equal plans have equal
// groups, wherever their blocks lie.
//
// Reads each block pointer of a shared prefix about once. Its memory is used again by the next
// call, so that a steady state allocates nothing. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"

namespace kvern::engine {

class SharedGroups {
 public:
  // Replaces `out` by the groups of these slices, ordered by their first slice; each has two slices
  // or more. What they point to is valid until the next call. REQUIRES: equally many views a slice.
  void Find(std::span<const Slice> slices, std::vector<SharedPrefix>& out);

 private:
  // A place where prefixes part or end. Node 0 is the root, where nothing is shared; parents come
  // before their children.
  struct Node {
    uint32_t parent;
    uint32_t num_chunks;  // that all slices below share
    uint32_t depth;       // nodes above it
    uint32_t num_ending;  // slices that share no more than this
    size_t first_value;   // of depth + 1 in values_
    uint32_t group;       // the node whose group those slices join; the root: none
    uint32_t num_members;
    uint32_t num_placed;
    uint32_t first_member;  // in members_
  };
  // Slices order_[begin, end), which share all blocks before `block` and go on behind them.
  struct Part {
    uint32_t begin;
    uint32_t end;
    uint32_t block;
    uint32_t node;
  };
  struct Entry {
    uint64_t key;
    uint32_t slice;
  };

  uint32_t CountShared(uint32_t a, uint32_t b, uint32_t from) const;
  uint64_t KeyOf(uint32_t slice, uint32_t block) const;
  uint32_t AddNode(uint32_t parent, uint32_t num_blocks);
  void End(uint32_t slice, uint32_t node);
  void SortEntries(uint32_t begin, uint32_t end);
  void BuildTree();
  void Divide(const Part& part);
  void FollowLongest(const Part& part);
  void DivideLater(const Part& part);
  void ChooseGroups();
  void Emit(std::vector<SharedPrefix>& out);

  std::span<const Slice> slices_;
  std::vector<uint32_t> num_visible_;  // blocks that a slice could share
  std::vector<uint32_t> node_of_;      // where a slice ends
  std::vector<Entry> order_;
  std::vector<Part> parts_;
  std::vector<Node> nodes_;
  std::vector<int64_t> values_;
  std::vector<uint32_t> members_;
};

}  // namespace kvern::engine
