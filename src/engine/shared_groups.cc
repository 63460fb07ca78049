#include "engine/shared_groups.h"

#include <algorithm>
#include <cstring>

namespace kvern::engine {
namespace {

constexpr uint32_t kRoot = 0;

// Blocks of whole chunks before the slice's first position.
uint32_t NumVisible(const Slice& slice) {
  uint32_t num_chunks = slice.views.empty() ? 0 : slice.first_position / kChunkTokens;
  for (const PagedView& view : slice.views) {
    num_chunks = std::min(num_chunks, view.num_blocks / kChunkBlocks);
  }
  return num_chunks * kChunkBlocks;
}

// The first index in [from, end) where the pointers differ; `end` if none.
uint32_t FirstDifference(std::byte* const* a, std::byte* const* b, uint32_t from, uint32_t end) {
  if (a == b) return end;
  constexpr uint32_t kStride = 32;
  while (end - from >= kStride && std::memcmp(a + from, b + from, kStride * sizeof(*a)) == 0) {
    from += kStride;
  }
  while (from < end && a[from] == b[from]) ++from;
  return from;
}

}  // namespace

void SharedGroups::Find(std::span<const Slice> slices, std::vector<SharedPrefix>& out) {
  slices_ = slices;
  BuildTree();
  ChooseGroups();
  Emit(out);
}

// --- The tree of block pointers, without what only one slice has ---

uint32_t SharedGroups::CountShared(uint32_t a, uint32_t b, uint32_t from) const {
  uint32_t end = std::min(num_visible_[a], num_visible_[b]);
  for (size_t v = 0; v < slices_[a].views.size(); ++v) {
    end = FirstDifference(slices_[a].views[v].blocks, slices_[b].views[v].blocks, from, end);
  }
  return end;
}

// Equal for equal blocks; should unequal ones collide, CountShared() tells them apart.
uint64_t SharedGroups::KeyOf(uint32_t slice, uint32_t block) const {
  uint64_t key = 0;
  for (const PagedView& view : slices_[slice].views) {
    key = key * 0x9E3779B97F4A7C15u + reinterpret_cast<uintptr_t>(view.blocks[block]);
  }
  return key;
}

// The child of `parent` where `num_blocks` are shared: itself, if these make no chunk more.
uint32_t SharedGroups::AddNode(uint32_t parent, uint32_t num_blocks) {
  const uint32_t num_chunks = num_blocks / kChunkBlocks;
  if (nodes_[parent].num_chunks == num_chunks) return parent;
  Node node = {};
  node.parent = parent;
  node.num_chunks = num_chunks;
  node.depth = nodes_[parent].depth + 1;
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void SharedGroups::End(uint32_t slice, uint32_t node) {
  node_of_[slice] = node;
  ++nodes_[node].num_ending;
}

void SharedGroups::SortEntries(uint32_t begin, uint32_t end) {
  std::sort(order_.begin() + begin, order_.begin() + end, [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.slice < b.slice;
  });
}

void SharedGroups::BuildTree() {
  const auto num_slices = static_cast<uint32_t>(slices_.size());
  nodes_.assign(1, Node{});
  node_of_.assign(num_slices, kRoot);
  num_visible_.resize(num_slices);
  order_.clear();
  for (uint32_t slice = 0; slice < num_slices; ++slice) {
    num_visible_[slice] = NumVisible(slices_[slice]);
    if (num_visible_[slice] > 0) order_.push_back({0, slice});
  }
  parts_.clear();
  DivideLater({0, static_cast<uint32_t>(order_.size()), 0, kRoot});
  while (!parts_.empty()) {
    const Part part = parts_.back();
    parts_.pop_back();
    Divide(part);
  }
}

void SharedGroups::DivideLater(const Part& part) {
  if (part.end - part.begin > 1) {
    parts_.push_back(part);
  } else if (part.begin < part.end) {
    End(order_[part.begin].slice, part.node);
  }
}

// Splits a part by its next block.
void SharedGroups::Divide(const Part& part) {
  for (uint32_t i = part.begin; i < part.end; ++i) {
    order_[i].key = KeyOf(order_[i].slice, part.block);
  }
  SortEntries(part.begin, part.end);
  for (uint32_t begin = part.begin; begin < part.end;) {
    uint32_t end = begin + 1;
    while (end < part.end && order_[end].key == order_[begin].key) ++end;
    if (end - begin > 1) {
      FollowLongest({begin, end, part.block, part.node});
    } else {
      End(order_[begin].slice, part.node);
    }
    begin = end;
  }
}

// Of slices with the same next block: compares all to the longest, and so finds the nodes along it.
void SharedGroups::FollowLongest(const Part& part) {
  const auto entries = order_.begin();
  const auto shorter = [this](const Entry& a, const Entry& b) {
    return num_visible_[a.slice] < num_visible_[b.slice];
  };
  std::iter_swap(entries + part.begin,
                 std::max_element(entries + part.begin, entries + part.end, shorter));
  const uint32_t longest = order_[part.begin].slice;
  uint64_t deepest = part.block;
  for (uint32_t i = part.begin + 1; i < part.end; ++i) {
    order_[i].key = CountShared(longest, order_[i].slice, part.block);
    deepest = std::max(deepest, order_[i].key);
  }
  order_[part.begin].key = deepest;
  SortEntries(part.begin, part.end);

  uint32_t node = part.node;
  for (uint32_t begin = part.begin; begin < part.end;) {
    const uint64_t key = order_[begin].key;
    const auto block = static_cast<uint32_t>(key);
    node = AddNode(node, block);
    uint32_t going_on = begin;  // the end of those that do
    uint32_t end = begin;
    for (; end < part.end && order_[end].key == key; ++end) {
      const uint32_t slice = order_[end].slice;
      // The longest goes on alone; one that shares no block at all only looked as if it did.
      if (slice == longest || num_visible_[slice] == block || block == part.block) {
        End(slice, node);
      } else {
        order_[going_on++].slice = slice;
      }
    }
    DivideLater({begin, going_on, block, node});
    begin = end;
  }
}

// --- The best groups ---

// A node with a group costs reading its chunks once, and saves them for each slice that joins: the
// slices below that join no deeper one. So the best choice below a node depends on the nearest
// group above it alone, and values_ has what is saved for each that it may be.
void SharedGroups::ChooseGroups() {
  size_t num_values = 0;
  for (Node& node : nodes_) {
    node.first_value = num_values;
    num_values += node.depth + 1;
  }
  values_.assign(num_values, 0);
  for (size_t i = nodes_.size() - 1; i > 0; --i) {
    const Node& node = nodes_[i];
    int64_t* values = &values_[node.first_value];  // so far: of the children
    int64_t* parent_values = &values_[nodes_[node.parent].first_value];
    const int64_t num_chunks = node.num_chunks;
    values[node.depth] += num_chunks * node.num_ending - num_chunks;
    uint32_t above = node.parent;
    for (uint32_t depth = node.depth; depth-- > 0; above = nodes_[above].parent) {
      values[depth] += int64_t{nodes_[above].num_chunks} * node.num_ending;
      parent_values[depth] += std::max(values[depth], values[node.depth]);
    }
  }
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const int64_t* values = &values_[node.first_value];
    const uint32_t above = nodes_[node.parent].group;
    node.group = values[node.depth] > values[nodes_[above].depth] ? i : above;
  }
}

void SharedGroups::Emit(std::vector<SharedPrefix>& out) {
  out.clear();
  for (const uint32_t node : node_of_) ++nodes_[nodes_[node].group].num_members;
  members_.resize(slices_.size());
  uint32_t num_members = 0;
  for (uint32_t slice = 0; slice < slices_.size(); ++slice) {
    const uint32_t group = nodes_[node_of_[slice]].group;
    if (group == kRoot) continue;
    Node& node = nodes_[group];
    if (node.num_placed == 0) {
      node.first_member = num_members;
      num_members += node.num_members;
      out.push_back({{&members_[node.first_member], node.num_members}, node.num_chunks});
    }
    members_[node.first_member + node.num_placed++] = slice;
  }
}

}  // namespace kvern::engine
