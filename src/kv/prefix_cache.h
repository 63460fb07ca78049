// PrefixCache: finds blocks that can be used again, keeps them while nobody uses them, and evicts
// them when memory is wanted (rules K5, K7, K9).
//
// It owns the radix tree. Full-attention blocks in the tree are held by whole nodes: a pin on a
// node pins the path to it, and a node that is pinned holds one reference to each of its full
// blocks. Window and state blocks are held one by one by who needs them, as most of a path's are
// needed by nobody. What nobody holds is cached, and evicted from the leaves on: never a hole.
//
// One writer thread; const methods may be called by any number of readers while nobody writes.
//
// Invariants, checked by CheckInvariants():
//   1. Every block in the tree is published; a full block of a pinned node is active.
//   2. A node's pins are at least the sum of its children's. A tail has none.
//   3. The candidates of the policies are the leaves without pins.
//
// Accounts with a quota have orders of eviction of their own, all others have one together. Whoever
// wants memory takes it from the order whose victim was used longest ago, but from no other account
// so much that less is cached than its floor; at its share, from its own order alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/block_pool.h"
#include "kv/eviction_history.h"
#include "kv/policy.h"
#include "kv/radix_tree.h"
#include "kvern/kv.h"

namespace kvern::kv {

inline size_t Index(GroupId group) { return static_cast<size_t>(group); }

// The tree of a namespace, by its number.
inline uint32_t RootOf(NamespaceId ns) { return static_cast<uint32_t>(ns); }

// What the writer counts as it goes, readable from any thread.
struct Counters;

// The longest usable prefix of a text, before anything is pinned.
struct Prefix {
  Match match;             // how far full attention goes
  size_t num_blocks = 0;   // usable whole blocks …
  size_t num_partial = 0;  // … and rows of the block after them, which is …
  Node* partial_node = nullptr;
  size_t partial_block = 0;                 // … this one of that node
  std::optional<GroupId> short_group = {};  // whose window or state made it shorter than the match
};

class PrefixCache {
 public:
  struct Options {
    uint32_t block_tokens;
    const PolicyRow* policy;
    size_t history_blocks;
    size_t span_bytes_per_tenant;
    bool keep_keys;  // there is a tier
    std::function<double(size_t position, size_t num_tokens)> recompute_cost;
  };

  // Both must outlive it.
  PrefixCache(Options options, BlockPool* pool, Counters* counters);
  // REQUIRES: nothing is pinned.
  ~PrefixCache();

  void SetTime(int64_t now_us);
  int64_t now_us() const { return now_us_; }

  // The root of its tree has the namespace's number. Blocks are charged to `owner`, spans to
  // `tenant`.
  NamespaceId AddNamespace(std::string tenant, OwnerId owner);
  OwnerId OwnerOf(NamespaceId ns) const { return owners_[RootOf(ns)]; }

  // In place of those of before. Evicts what is cached beyond a share.
  void SetQuotas(const std::map<OwnerId, Quota>& quotas);
  // Bytes that blocks of this owner could have, by evicting what it may. With several groups that
  // is no promise: slabs may be too scattered.
  Room RoomFor(OwnerId owner) const;
  // The same with nothing cached or active.
  Room CapacityOf(std::optional<OwnerId> owner) const;

  // Read only. `max_hit` in tokens.
  Prefix Find(NamespaceId ns, std::span<const TokenId> tokens, size_t max_hit) const;
  // Why what comes after the prefix is not there, up to the end of `tokens`.
  std::vector<Miss> Explain(NamespaceId ns, std::span<const TokenId> tokens,
                            const Prefix& prefix) const;

  // The first rows of a block can be used without the rest.
  bool IsRowIndependent() const;
  // Whether lookups still reach a node that its holder pins.
  bool IsFindable(const Node* node) const { return num_detached_ == 0 || !IsInDetached(node); }
  // The blocks of one group on the path that ends at `node`; as many as `blocks` holds.
  void CopyPath(const Node* node, GroupId group, std::span<BlockId> blocks) const;

  // The node on the path to `node` that has block `block`, counted from the start of the text.
  Node* NodeWith(Node* node, size_t block) const;

  // Pins the node that ends `num_blocks` after the start of a match's path, splitting if it must.
  Node* PinPrefix(const Match& match, size_t num_blocks);
  void Pin(Node* node);
  void Unpin(Node* node);
  // The ancestor of a pinned node that ends at `num_blocks`, with the pin moved there.
  Node* MovePin(Node* node, size_t num_blocks);

  // A use by a lookup: counted, and its retention raised.
  void Use(Node* node, Retention retention, std::optional<int64_t> ttl_us);

  // Whole blocks that a sequence has computed after `at`, which it pins.
  struct Publication {
    Node* at;
    std::span<const TokenId> tokens;   // whole blocks
    std::span<const BlockSlot> slots;  // [block][group]
    std::span<const RecordKey> keys;   // of each block; empty without a tier
    Retention retention;
    std::optional<int64_t> ttl_us;
  };
  // What became of the first `num_blocks`: `node`, which ends there, has the pin now. Either they
  // were published, and the caller's references to full blocks passed to the tree; or they are
  // `existing`, the tree's own are in `slots`, and no reference passed.
  struct Published {
    Node* node;
    size_t num_blocks;
    bool existing;
    std::span<const BlockSlot> slots;
  };
  Published Publish(const Publication& publication);

  // The rest of a text, less than a block. The caller keeps its references.
  void PublishTail(const Publication& tail);

  // A window or state block for a block of the tree that has none. The caller keeps its reference.
  void FillSlot(Node* node, size_t block, GroupId group, BlockId id);

  // Takes a node's blocks from `block` on out of the tree; who holds them keeps them.
  void Withdraw(Node* node, size_t block);

  size_t BytesOf(const BlockCounts& num_blocks) const;
  // Whether memory for these is there, without evicting anything.
  bool HasRoom(OwnerId owner, const BlockCounts& num_blocks) const;
  // Whether it could be had by evicting.
  bool CouldMakeRoom(OwnerId owner, const BlockCounts& num_blocks) const;
  // The same, and then makes it available by evicting what it must.
  bool MakeRoom(OwnerId owner, const BlockCounts& num_blocks);

  SpanGrant KeepSpan(NamespaceId ns, std::span<const TokenId> tokens, int64_t ttl_us);
  size_t DropCached(std::optional<NamespaceId> ns);

  const RadixTree& tree() const { return tree_; }
  size_t index_bytes() const;
  void CheckInvariants() const;

 private:
  // Where in the tree a block is.
  struct Place {
    Node* node = nullptr;
    size_t block = 0;  // counted from the start of the text
  };

  using Order = std::array<std::unique_ptr<EvictionPolicy>, kNumLevels>;
  struct Account {
    Quota quota;
    Order order;
  };
  // For whom memory is wanted, and from whom it may be taken.
  struct Claim {
    OwnerId owner{};
    bool own_only = false;        // its share is full
    bool despite_floors = false;  // nothing else will do
  };

  bool is_hybrid() const { return !aux_groups_.empty(); }
  Level LevelOf(const Node& node) const;
  void AddCandidate(Node* node);
  void RemoveCandidate(Node* node);
  void Reconsider(Node* node);
  void HoldFull(Node* node, bool hold);
  Node* Split(Node* node, size_t num_blocks);
  bool MayExtend(const Node& node, const Publication& publication) const;
  void TakeOver(Node* node, size_t first_block, const Publication& publication);
  void NotePlaces(Node* node, size_t first_block);
  void DropTailsOf(Node* parent, std::span<const TokenId> text);

  void NoteCached(BlockId block);
  Order MakeOrder() const;
  Order& OrderOf(const Node& node);
  EvictionPolicy& PolicyOf(const Node& node) {
    return *OrderOf(node)[static_cast<size_t>(node.level)];
  }
  bool MayTakeFrom(OwnerId owner, const Claim& claim) const;
  bool MayTakeFrom(const Node& node, const Claim& claim) const {
    return MayTakeFrom(owners_[node.root], claim);
  }
  size_t BytesWithheld(OwnerId from) const;
  void KeepToShare(OwnerId owner, size_t more_bytes);
  bool EvictOne(const Claim& claim, const BlockCounts& wanted);
  bool EvictStaleAux(const Claim& claim);
  bool EvictAnyAux(const Claim& claim);
  bool EvictAuxOf(Node* node, bool stale_only);
  bool IsStale(const Node& node, size_t block, GroupId group) const;
  bool MoveSlabFor(const BlockCounts& wanted);
  Node* NextVictim(const Claim& claim);
  void ExpireCandidates();
  void EvictLastBlock(Node* node, EvictionCause cause);
  void EvictWhole(Node* node, EvictionCause cause);
  void EvictSlot(Node* node, size_t block, GroupId group, EvictionCause cause);
  void RemoveEmpty(Node* node);
  void Unlink(Node* node);
  void UnpublishBelow(Node* node);
  void FreeDetached(Node* node);
  bool IsInDetached(const Node* node) const;
  // `node` got or loses the first block of its namespace's text.
  void CountFirstBlock(const Node& node, bool is_new);

  Prefix Limit(Prefix prefix, size_t max_hit) const;
  Prefix Shorten(const Prefix& prefix) const;
  Miss ExplainEnd(NamespaceId ns, std::span<const TokenId> tokens, const Match& match,
                  size_t position) const;

  size_t FullBytes(const Node& node) const;
  void ChargeSpan(Node* node, int64_t until_us);
  void EndSpan(Node* node);
  SpanGrant EndSpansOf(NamespaceId ns, std::span<const TokenId> tokens);
  void EndSpans();

  void CheckNode(const Node& node) const;

  const Options options_;
  BlockPool* const pool_;
  Counters* const counters_;
  RadixTree tree_;
  std::vector<GroupId> full_groups_;
  std::vector<GroupId> aux_groups_;  // window and state
  size_t leaf_bytes_ = 0;            // that evicting one block of all full groups frees
  Order common_;
  std::map<OwnerId, Account> accounts_;  // that have or had a quota
  EvictionHistory history_;
  int64_t now_us_ = 0;
  // By node id, so that runs repeat exactly.
  std::set<std::pair<int64_t, uint32_t>> expiring_;  // candidates with a TTL
  std::set<std::pair<int64_t, uint32_t>> spans_;     // nodes in a span, by its end
  std::vector<std::string> tenants_;                 // by namespace
  std::vector<OwnerId> owners_;                      // by namespace
  std::map<std::string, size_t> span_bytes_;         // by tenant
  std::vector<Place> places_;                        // by block; hybrid pools only
  std::set<uint32_t> aux_stale_;     // may have aux blocks that lie before their node's last window
  std::set<uint32_t> aux_junction_;  // may have others
  std::vector<BlockId> scratch_;
  std::unordered_map<uint64_t, size_t>
      first_blocks_;  // hash of first blocks → namespaces, if several
  size_t num_detached_ = 0;
};

}  // namespace kvern::kv
