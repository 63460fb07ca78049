// RadixTree: the texts whose blocks are in memory, by their tokens (rule K5).
//
// One tree per namespace. A node holds the tokens of a run of whole blocks and, per block and
// group, the block that has their K/V; children go on from its end. A *tail* is a leaf of less
// than one block: the end of a text, found and copied from but never shared. Tokens are compared
// exactly.
//
//     root ── [system prompt: 40 blocks] ─┬─ [chat A: 12 blocks] ── [tail: 5 tokens]
//                                         └─ [chat B: 3 blocks]
//
// Only the structure lives here: who holds a node, what is evicted and where memory comes from is
// the prefix cache's business (kv/prefix_cache.h), in the fields of Node that it keeps.
//
// One writer thread; const methods may be called by any number of readers while nobody writes.
//
// Invariants, checked by CheckInvariants():
//   1. A node but a root has tokens; a multiple of block_tokens, or fewer in a tail, a leaf.
//   2. Two children of a node differ in their first block, and no tail is the prefix of a sibling.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/record.h"
#include "kvern/ids.h"
#include "kvern/kv.h"

namespace kvern::kv {

struct Node;

// Orders the children of a node by their first block; equal prefixes lie side by side.
struct FirstBlockLess {
  using is_transparent = void;
  uint32_t block_tokens;

  bool operator()(const Node* a, const Node* b) const;
  bool operator()(const Node* a, std::span<const TokenId> b) const;
  bool operator()(std::span<const TokenId> a, const Node* b) const;
};
using ChildSet = std::set<Node*, FirstBlockLess>;

struct TreeBlock {
  uint64_t chain;  // hash of the text up to the end of this block
  int64_t published_us;
};

// Where the K/V of one block lies in one group: there, or not.
class BlockSlot {
 public:
  BlockSlot() = default;
  explicit BlockSlot(BlockId id) : id_(static_cast<uint32_t>(id)) {}
  explicit operator bool() const { return id_ != kNone; }
  BlockId operator*() const { return static_cast<BlockId>(id_); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;  // half the size of an optional
  uint32_t id_ = kNone;
};

// How willingly a node is evicted, least willingly last.
enum class Level : uint8_t { kExpired, kLow, kNormal, kHigh, kSpan };
inline constexpr size_t kNumLevels = 5;

struct Node {
  // The tree's.
  uint32_t id = 0;  // dense; used again when the node is gone
  uint32_t root = 0;
  size_t position = 0;  // of its first token
  Node* parent = nullptr;
  std::vector<TokenId> tokens;
  std::vector<TreeBlock> blocks;
  std::vector<BlockSlot> slots;        // [block][group]
  std::vector<RecordKey> keys;         // of blocks; only where there is a tier
  std::unique_ptr<ChildSet> children;  // null: none
  ChildSet::iterator place;            // among its parent's children, unless detached
  size_t counted_bytes = 0;            // of this node in RadixTree::bytes()

  // The prefix cache's.
  uint32_t num_pins = 0;  // paths that go through or end here
  uint32_t num_uses = 0;
  int64_t last_used_us = 0;
  int64_t ttl_us = INT64_MAX;
  int64_t span_until_us = INT64_MIN;
  uint32_t aux_cursor = 0;  // no block before it has a window or state block to evict
  Retention retention = Retention::kNormal;
  Level level = Level::kNormal;  // valid while a candidate
  bool is_candidate = false;     // a policy has it
  bool is_detached = false;      // out of the tree, alive while pinned

  bool is_root() const { return parent == nullptr && tokens.empty(); }
  bool is_leaf() const { return children == nullptr; }
  size_t end() const { return position + tokens.size(); }
  size_t num_blocks() const { return blocks.size(); }
};

// How far a text goes along the tree.
struct Match {
  Node* node = nullptr;    // the deepest with a whole block of the match; else the root
  size_t num_in_node = 0;  // whole blocks of it that match
  size_t num_blocks = 0;   // whole blocks that match, of all nodes
  Node* next = nullptr;    // the best that goes on from there, if anything does …
  size_t next_block = 0;   // … its block that comes next
  size_t next_tokens = 0;  // … of which so many first tokens match
  size_t nodes_visited = 0;
};

class RadixTree {
 public:
  RadixTree(uint32_t block_tokens, size_t num_groups);
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  uint32_t block_tokens() const { return block_tokens_; }
  size_t num_groups() const { return num_groups_; }

  // Another tree, for another namespace. Roots are numbered 0, 1, ….
  Node* AddRoot();
  Node* root(uint32_t index) const { return roots_[index]; }
  size_t num_roots() const { return roots_.size(); }

  // The longest match of whole blocks, and what of the next block matches. O(tokens).
  Match Find(uint32_t root, std::span<const TokenId> tokens) const;

  // The child that starts with these block_tokens tokens, if there is one.
  Node* FindChild(const Node& node, std::span<const TokenId> first_block) const;

  // Blocks to be put into the tree: `slots` is [block][group].
  struct NewBlocks {
    std::span<const TokenId> tokens;
    std::span<const BlockSlot> slots;
    int64_t now_us;
  };

  // A child of `parent`, or a longer `node`. REQUIRES: the invariants hold with them.
  Node* AddChild(Node* parent, const NewBlocks& blocks);
  void Extend(Node* node, const NewBlocks& blocks);

  // Cuts a node after `num_blocks` of its blocks: 0 < num_blocks < its number. The node itself
  // becomes the lower part; the new upper part has the same pins and uses. Returns the upper part.
  Node* Split(Node* node, size_t num_blocks);

  // Forgets the last block of a leaf, or all of a tail. The node may be left without blocks.
  void PopBlock(Node* node);

  // Takes a node out of its parent's children: lookups no longer find it.
  void Detach(Node* node);

  // Frees a detached node without children.
  void Destroy(Node* node);

  BlockSlot& Slot(Node* node, size_t block, size_t group) const {
    return node->slots[block * num_groups_ + group];
  }
  // The chain hash before the node's first block. Chains of different namespaces differ.
  uint64_t ChainBefore(const Node& node) const;
  static uint64_t Chain(uint64_t before, std::span<const TokenId> block);

  // Null where the id is not in use.
  Node* node(uint32_t id) const { return nodes_[id].get(); }
  uint32_t max_node_id() const { return static_cast<uint32_t>(nodes_.size()); }
  size_t num_nodes() const { return nodes_.size() - free_ids_.size(); }
  size_t num_blocks() const { return num_blocks_; }
  // Of nodes, tokens and their tables, as allocated. Any thread.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  void CheckInvariants() const;

 private:
  Node* NewNode(uint32_t root, Node* parent, size_t position);
  void Append(Node* node, const NewBlocks& blocks);
  void Link(Node* node);
  std::span<const TokenId> FirstBlock(const Node& node) const;
  size_t BytesOf(const Node& node) const;
  void CountBytes(Node* node);
  void CheckNode(const Node& node) const;

  const uint32_t block_tokens_;
  const size_t num_groups_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint32_t> free_ids_;
  std::vector<Node*> roots_;
  size_t num_blocks_ = 0;
  std::atomic<size_t> bytes_{0};
};

}  // namespace kvern::kv
