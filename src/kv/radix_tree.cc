#include "kv/radix_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "kv/tokens.h"

namespace kvern::kv {
namespace {

// By bytes: any order of tokens will do, as long as equal prefixes lie side by side.
bool Less(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t size = std::min(a.size(), b.size());
  const int order = size == 0 ? 0 : std::memcmp(a.data(), b.data(), size * sizeof(TokenId));
  return order != 0 ? order < 0 : a.size() < b.size();
}

template <typename T>
std::span<const T> First(const std::vector<T>& values, size_t count) {
  return std::span(values).first(std::min(count, values.size()));
}

template <typename T>
void MoveFront(std::vector<T>& from, std::vector<T>& to, size_t count) {
  const auto end = from.begin() + static_cast<ptrdiff_t>(count);
  to.assign(from.begin(), end);
  from.erase(from.begin(), end);
}

}  // namespace

bool FirstBlockLess::operator()(const Node* a, const Node* b) const {
  return Less(First(a->tokens, block_tokens), First(b->tokens, block_tokens));
}
bool FirstBlockLess::operator()(const Node* a, std::span<const TokenId> b) const {
  return Less(First(a->tokens, block_tokens), b);
}
bool FirstBlockLess::operator()(std::span<const TokenId> a, const Node* b) const {
  return Less(a, First(b->tokens, block_tokens));
}

RadixTree::RadixTree(uint32_t block_tokens, size_t num_groups)
    : block_tokens_(block_tokens), num_groups_(num_groups) {}

RadixTree::~RadixTree() = default;

Node* RadixTree::AddRoot() {
  Node* const root = NewNode(static_cast<uint32_t>(roots_.size()), nullptr, 0);
  roots_.push_back(root);
  return root;
}

Match RadixTree::Find(uint32_t root, std::span<const TokenId> tokens) const {
  Match match{.node = roots_[root], .nodes_visited = 1};
  while (!match.node->is_leaf()) {
    const auto rest = tokens.subspan(match.num_blocks * block_tokens_);
    const auto first = rest.first(std::min<size_t>(rest.size(), block_tokens_));
    const ChildSet& children = *match.node->children;
    const auto at = children.lower_bound(first);
    // The child with the longest common prefix is next to where the text would stand.
    for (const auto candidate : {at, at == children.begin() ? children.end() : std::prev(at)}) {
      if (candidate == children.end()) continue;
      ++match.nodes_visited;
      const size_t same = CommonPrefix(FirstBlock(**candidate), first);
      if (match.next != nullptr && same <= match.next_tokens) continue;
      match.next = *candidate;
      match.next_block = 0;
      match.next_tokens = same;
    }
    if (match.next == nullptr || match.next_tokens < block_tokens_) return match;

    Node* const child = match.next;
    const size_t same = CommonPrefix(child->tokens, rest);
    match.node = child;
    match.num_in_node = same / block_tokens_;
    match.num_blocks += match.num_in_node;
    match.next = nullptr;
    match.next_tokens = 0;
    if (match.num_in_node < child->num_blocks()) {
      match.next = child;
      match.next_block = match.num_in_node;
      match.next_tokens = same % block_tokens_;
      return match;
    }
  }
  return match;
}

Node* RadixTree::FindChild(const Node& node, std::span<const TokenId> first_block) const {
  if (node.is_leaf()) return nullptr;
  const auto child = node.children->find(first_block);
  return child == node.children->end() ? nullptr : *child;
}

Node* RadixTree::AddChild(Node* parent, const NewBlocks& blocks) {
  Node* const node = NewNode(parent->root, parent, parent->end());
  Append(node, blocks);
  Link(node);
  return node;
}

void RadixTree::Extend(Node* node, const NewBlocks& blocks) {
  CHECK(node->is_leaf() && !node->is_root() && node->tokens.size() % block_tokens_ == 0);
  Append(node, blocks);
}

void RadixTree::Append(Node* node, const NewBlocks& blocks) {
  uint64_t chain = node->blocks.empty() ? ChainBefore(*node) : node->blocks.back().chain;
  for (auto rest = blocks.tokens; !rest.empty();) {
    const auto block = rest.first(std::min<size_t>(rest.size(), block_tokens_));
    chain = Chain(chain, block);
    node->blocks.push_back({chain, blocks.now_us});
    rest = rest.subspan(block.size());
    ++num_blocks_;
  }
  node->tokens.insert(node->tokens.end(), blocks.tokens.begin(), blocks.tokens.end());
  node->slots.insert(node->slots.end(), blocks.slots.begin(), blocks.slots.end());
  CountBytes(node);
}

Node* RadixTree::Split(Node* node, size_t num_blocks) {
  CHECK(num_blocks > 0 && num_blocks < node->num_blocks());
  Node* const upper = NewNode(node->root, node->parent, node->position);
  if (!node->is_detached) node->parent->children->erase(node->place);
  MoveFront(node->tokens, upper->tokens, num_blocks * block_tokens_);
  MoveFront(node->blocks, upper->blocks, num_blocks);
  MoveFront(node->slots, upper->slots, num_blocks * num_groups_);
  if (!node->keys.empty()) MoveFront(node->keys, upper->keys, num_blocks);
  node->position = upper->end();
  node->parent = upper;
  upper->num_pins = node->num_pins;
  upper->num_uses = node->num_uses;
  upper->last_used_us = node->last_used_us;
  upper->ttl_us = node->ttl_us;
  upper->span_until_us = node->span_until_us;
  upper->retention = node->retention;
  upper->is_detached = node->is_detached;
  upper->aux_cursor = std::min(node->aux_cursor, static_cast<uint32_t>(num_blocks));
  node->aux_cursor -= upper->aux_cursor;
  if (!upper->is_detached) Link(upper);
  node->is_detached = false;
  Link(node);
  CountBytes(upper);
  CountBytes(node);
  return upper;
}

void RadixTree::PopBlock(Node* node) {
  CHECK(node->is_leaf() && !node->blocks.empty());
  const size_t num_tokens = node->tokens.size() - (node->num_blocks() - 1) * block_tokens_;
  // The last block goes with its node, whose first tokens order it among its siblings till then.
  if (node->num_blocks() > 1) node->tokens.resize(node->tokens.size() - num_tokens);
  node->blocks.pop_back();
  node->slots.resize(node->slots.size() - num_groups_);
  if (!node->keys.empty()) node->keys.pop_back();
  --num_blocks_;
}

void RadixTree::Detach(Node* node) {
  CHECK(!node->is_root() && !node->is_detached);
  Node* const parent = node->parent;
  parent->children->erase(node->place);
  if (parent->children->empty()) parent->children.reset();
  node->is_detached = true;
}

void RadixTree::Destroy(Node* node) {
  CHECK(node->is_detached && node->is_leaf());
  num_blocks_ -= node->num_blocks();
  bytes_.fetch_sub(node->counted_bytes, std::memory_order_relaxed);
  free_ids_.push_back(node->id);
  nodes_[node->id].reset();
}

uint64_t RadixTree::ChainBefore(const Node& node) const {
  const Node* const parent = node.parent;
  if (parent == nullptr || parent->blocks.empty()) return node.root + 1;  // not 0: see Chain()
  return parent->blocks.back().chain;
}

uint64_t RadixTree::Chain(uint64_t before, std::span<const TokenId> block) {
  // Mixed, as XXH3 lets small seeds and small inputs cancel.
  uint64_t seed = (before + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
  seed ^= seed >> 32;
  return Hash64(std::as_bytes(block), seed * 0x94D049BB133111EB);
}

Node* RadixTree::NewNode(uint32_t root, Node* parent, size_t position) {
  uint32_t id = static_cast<uint32_t>(nodes_.size());
  if (free_ids_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  nodes_[id] = std::make_unique<Node>();
  Node* const node = nodes_[id].get();
  node->id = id;
  node->root = root;
  node->parent = parent;
  node->position = position;
  return node;
}

void RadixTree::Link(Node* node) {
  Node* const parent = node->parent;
  if (parent->children == nullptr) {
    parent->children = std::make_unique<ChildSet>(FirstBlockLess{block_tokens_});
  }
  const auto [place, is_new] = parent->children->insert(node);
  CHECK(is_new);
  node->place = place;
}

std::span<const TokenId> RadixTree::FirstBlock(const Node& node) const {
  return First(node.tokens, block_tokens_);
}

size_t RadixTree::BytesOf(const Node& node) const {
  constexpr size_t kSetNodeBytes = 40;  // of std::set, for one child
  size_t bytes =
      sizeof(Node) + sizeof(nodes_[0]) + kSetNodeBytes + node.tokens.capacity() * sizeof(TokenId) +
      node.blocks.capacity() * sizeof(TreeBlock) + node.slots.capacity() * sizeof(BlockSlot) +
      node.keys.capacity() * sizeof(RecordKey);
  if (!node.is_leaf()) bytes += sizeof(ChildSet);
  return bytes;
}

void RadixTree::CountBytes(Node* node) {
  const size_t bytes = BytesOf(*node);
  bytes_.fetch_add(bytes - node->counted_bytes, std::memory_order_relaxed);
  node->counted_bytes = bytes;
}

void RadixTree::CheckInvariants() const {
  size_t num_blocks = 0;
  for (const auto& node : nodes_) {
    if (node == nullptr) continue;
    num_blocks += node->num_blocks();
    CheckNode(*node);
  }
  CHECK(num_blocks == num_blocks_);
  size_t bytes = 0;
  for (const auto& node : nodes_) bytes += node == nullptr ? 0 : node->counted_bytes;
  CHECK(bytes == this->bytes());
}

void RadixTree::CheckNode(const Node& node) const {
  CHECK(nodes_[node.id].get() == &node);
  CHECK(node.slots.size() == node.num_blocks() * num_groups_);
  CHECK(node.keys.empty() || node.keys.size() == node.num_blocks());
  CHECK(node.num_blocks() == (node.tokens.size() + block_tokens_ - 1) / block_tokens_);
  if (!node.is_root()) {
    CHECK(!node.tokens.empty() && node.position == node.parent->end() &&
          node.root == node.parent->root);
    const bool is_tail = node.tokens.size() % block_tokens_ != 0;
    CHECK(!is_tail || (node.is_leaf() && node.num_blocks() == 1));
    if (!node.is_detached) CHECK(*node.place == &node);
  }
  if (node.is_leaf()) return;
  CHECK(!node.children->empty());
  const Node* before = nullptr;
  for (const Node* child : *node.children) {
    CHECK(child->parent == &node && !child->is_detached);
    if (before != nullptr) {
      const size_t same = CommonPrefix(FirstBlock(*before), FirstBlock(*child));
      CHECK(same < FirstBlock(*before).size());
    }
    before = child;
  }
}

}  // namespace kvern::kv
