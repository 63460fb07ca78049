// PrefixCache's eviction: candidates, victims, and room for blocks that are wanted.
#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "kv/counters.h"
#include "kv/prefix_cache.h"

namespace kvern::kv {
// ---- Candidates

Level PrefixCache::LevelOf(const Node& node) const {
  if (node.span_until_us > now_us_) return Level::kSpan;
  if (node.ttl_us <= now_us_ - node.last_used_us) return Level::kExpired;
  return static_cast<Level>(static_cast<int>(Level::kLow) + static_cast<int>(node.retention));
}

void PrefixCache::AddCandidate(Node* node) {
  CHECK(!node->is_candidate && node->num_pins == 0 && node->is_leaf() && !node->is_root());
  node->is_candidate = true;
  node->level = LevelOf(*node);
  PolicyOf(*node).Add(
      {.item = node->id,
       .key = node->blocks.back().chain,
       .bytes = FullBytes(*node),
       .recompute_cost = options_.recompute_cost(node->position, node->tokens.size()),
       .num_uses = node->num_uses,
       .last_used_us = node->last_used_us});
  const bool expires =
      node->ttl_us != INT64_MAX && node->level != Level::kExpired && node->level != Level::kSpan;
  if (expires) expiring_.emplace(node->last_used_us + node->ttl_us, node->id);
}

void PrefixCache::RemoveCandidate(Node* node) {
  CHECK(node->is_candidate);
  PolicyOf(*node).Remove(node->id);
  node->is_candidate = false;
  if (node->ttl_us != INT64_MAX) expiring_.erase({node->last_used_us + node->ttl_us, node->id});
}

void PrefixCache::Reconsider(Node* node) {
  if (!node->is_root() && !node->is_candidate && node->num_pins == 0 && node->is_leaf()) {
    AddCandidate(node);
  }
}

void PrefixCache::ExpireCandidates() {
  while (!expiring_.empty() && expiring_.begin()->first <= now_us_) {
    Node* const node = tree_.node(expiring_.begin()->second);
    RemoveCandidate(node);
    AddCandidate(node);
  }
}

Node* PrefixCache::NextVictim(const Claim& claim) {
  ExpireCandidates();
  for (size_t level = 0; level < kNumLevels; ++level) {
    Node* victim = nullptr;
    const auto offer = [&](const Order& order) {
      const auto item = order[level]->Victim();
      Node* const node = item ? tree_.node(*item) : nullptr;
      if (node == nullptr) return;
      if (victim == nullptr || node->last_used_us < victim->last_used_us) victim = node;
    };
    if (!claim.own_only) offer(common_);
    for (const auto& [owner, account] : accounts_) {
      if (MayTakeFrom(owner, claim)) offer(account.order);
    }
    if (victim != nullptr) return victim;
  }
  return nullptr;
}

// ---- Eviction

bool PrefixCache::MakeRoom(OwnerId owner, const BlockCounts& num_blocks) {
  if (HasRoom(owner, num_blocks)) return true;
  if (!CouldMakeRoom(owner, num_blocks)) return false;
  KeepToShare(owner, BytesOf(num_blocks));
  while (!pool_->CanReserve(num_blocks)) {
    if (EvictOne({.owner = owner}, num_blocks)) continue;
    // There are bytes enough, but in slabs of other groups, where floors hold them.
    CHECK(is_hybrid() && EvictOne({.owner = owner, .despite_floors = true}, num_blocks));
  }
  return true;
}

// What costs least first: what no query of a longer text sees; nothing, where moving will do; the
// policy's victim; and at last the windows and states of texts that are in use.
bool PrefixCache::EvictOne(const Claim& claim, const BlockCounts& wanted) {
  if (is_hybrid()) {
    if (EvictStaleAux(claim) || (!claim.own_only && MoveSlabFor(wanted))) return true;
  }
  if (Node* const victim = NextVictim(claim)) {
    EvictLastBlock(victim, victim->level == Level::kExpired ? EvictionCause::kExpired
                           : claim.own_only                 ? EvictionCause::kShare
                                                            : EvictionCause::kPolicy);
    return true;
  }
  return is_hybrid() && EvictAnyAux(claim);
}

void PrefixCache::EvictLastBlock(Node* node, EvictionCause cause) {
  const TreeBlock& block = node->blocks.back();
  history_.Add({.chain = block.chain, .when_us = now_us_, .cause = cause});
  counters_->lifetime_us.Add(static_cast<uint64_t>(now_us_ - block.published_us));
  counters_->idle_before_evict_us.Add(static_cast<uint64_t>(now_us_ - node->last_used_us));
  const size_t last = node->num_blocks() - 1;
  if (node->span_until_us != INT64_MIN) {
    span_bytes_[tenants_[node->root]] -= leaf_bytes_;
  }
  for (const GroupId group : full_groups_) EvictSlot(node, last, group, cause);
  for (const GroupId group : aux_groups_) {
    if (tree_.Slot(node, last, Index(group))) {
      EvictSlot(node, last, group, EvictionCause::kUnreachable);
    }
  }
  tree_.PopBlock(node);
  if (last == 0) RemoveEmpty(node);
}

void PrefixCache::EvictWhole(Node* node, EvictionCause cause) {
  for (size_t left = node->num_blocks(); left > 0; --left) EvictLastBlock(node, cause);
}

void PrefixCache::EvictSlot(Node* node, size_t block, GroupId group, EvictionCause cause) {
  BlockSlot& slot = tree_.Slot(node, block, Index(group));
  pool_->Unpublish(*slot);
  slot = {};
  counters_->evicted_blocks[static_cast<size_t>(cause)].Add(1);
}

void PrefixCache::RemoveEmpty(Node* node) {
  if (node->is_candidate) {
    PolicyOf(*node).Evict(node->id);
    node->is_candidate = false;
    if (node->ttl_us != INT64_MAX) expiring_.erase({node->last_used_us + node->ttl_us, node->id});
  }
  EndSpan(node);
  aux_stale_.erase(node->id);
  aux_junction_.erase(node->id);
  Unlink(node);
  tree_.Destroy(node);
}

// Its parent may be a leaf now.
void PrefixCache::Unlink(Node* node) {
  CountFirstBlock(*node, false);
  Node* const parent = node->parent;
  tree_.Detach(node);
  Reconsider(parent);
}

void PrefixCache::CountFirstBlock(const Node& node, bool is_new) {
  if (tree_.num_roots() < 2) return;  // nobody to tell from
  if (!node.parent->is_root() || node.tokens.size() < tree_.block_tokens()) return;
  const auto first = std::span(node.tokens).first(tree_.block_tokens());
  const uint64_t hash = Hash64(std::as_bytes(first), 0);
  const auto entry = first_blocks_.try_emplace(hash, 0).first;
  entry->second += is_new ? 1 : -1;
  if (entry->second == 0) first_blocks_.erase(entry);
}

size_t PrefixCache::DropCached(std::optional<NamespaceId> ns) {
  const auto count = [&] {
    uint64_t blocks = 0;
    for (const Counter& counter : counters_->evicted_blocks) blocks += counter.Read();
    return blocks;
  };
  const uint64_t before = count();
  const auto is_wanted = [&](const Node& node) { return !ns || node.root == RootOf(*ns); };
  for (bool found = true; found;) {
    std::vector<Node*> leaves;
    for (uint32_t id = 0; id < tree_.max_node_id(); ++id) {
      Node* const node = tree_.node(id);
      if (node != nullptr && node->is_candidate && is_wanted(*node)) leaves.push_back(node);
    }
    for (Node* leaf : leaves) EvictWhole(leaf, EvictionCause::kDropped);
    found = !leaves.empty();
  }
  for (auto* const list : {&aux_stale_, &aux_junction_}) {
    for (const uint32_t id : std::vector<uint32_t>(list->begin(), list->end())) {
      Node* const node = tree_.node(id);
      if (!is_wanted(*node)) continue;
      while (EvictAuxOf(node, /*stale_only=*/false)) {
      }
    }
  }
  return count() - before;
}

// ---- Window and state blocks

void PrefixCache::NoteCached(BlockId block) {
  if (pool_->group(pool_->GroupIdOf(block)).kind == GroupKind::kFull) return;
  const Place& place = places_[static_cast<size_t>(block)];
  Node* const node = place.node;
  const size_t in_node = place.block - node->position / tree_.block_tokens();
  node->aux_cursor = std::min(node->aux_cursor, static_cast<uint32_t>(in_node));
  aux_junction_.erase(node->id);
  aux_stale_.insert(node->id);
}

bool PrefixCache::EvictStaleAux(const Claim& claim) {
  for (auto next = aux_stale_.begin(); next != aux_stale_.end();) {
    const uint32_t id = *next;
    if (!MayTakeFrom(*tree_.node(id), claim)) {
      ++next;
      continue;
    }
    if (EvictAuxOf(tree_.node(id), /*stale_only=*/true)) return true;
    next = aux_stale_.erase(next);
    aux_junction_.insert(id);
  }
  return false;
}

bool PrefixCache::EvictAnyAux(const Claim& claim) {
  for (auto next = aux_junction_.begin(); next != aux_junction_.end();) {
    if (!MayTakeFrom(*tree_.node(*next), claim)) {
      ++next;
      continue;
    }
    if (EvictAuxOf(tree_.node(*next), /*stale_only=*/false)) return true;
    next = aux_junction_.erase(next);
  }
  return false;
}

bool PrefixCache::EvictAuxOf(Node* node, bool stale_only) {
  bool is_empty_so_far = true;
  for (size_t block = node->aux_cursor; block < node->num_blocks(); ++block) {
    for (const GroupId group : aux_groups_) {
      const BlockSlot slot = tree_.Slot(node, block, Index(group));
      if (!slot) continue;
      is_empty_so_far = false;
      if (pool_->num_references(*slot) > 0) continue;
      if (stale_only && !IsStale(*node, block, group)) continue;
      EvictSlot(node, block, group, EvictionCause::kWindow);
      return true;
    }
    if (is_empty_so_far) node->aux_cursor = static_cast<uint32_t>(block + 1);
  }
  return false;
}

// No text that goes on from the node's end needs it.
bool PrefixCache::IsStale(const Node& node, size_t block, GroupId group) const {
  const GroupSpec& spec = pool_->group(group);
  const size_t tokens_after = (node.num_blocks() - 1 - block) * tree_.block_tokens();
  if (spec.kind == GroupKind::kState) return tokens_after > 0;
  return tokens_after + 1 >= spec.window;
}

bool PrefixCache::MoveSlabFor(const BlockCounts& wanted) {
  for (size_t i = 0; i < pool_->num_groups(); ++i) {
    if (wanted[i] == 0) continue;
    const auto cached = pool_->FindSpareSlab(static_cast<GroupId>(i));
    if (!cached) continue;
    for (const BlockId block : *cached) {
      const Place place = places_[static_cast<size_t>(block)];
      const auto group = Index(pool_->GroupIdOf(block));
      const BlockId moved = pool_->Move(block);
      const size_t in_node = place.block - place.node->position / tree_.block_tokens();
      tree_.Slot(place.node, in_node, group) = BlockSlot(moved);
      if (static_cast<size_t>(moved) >= places_.size()) {
        places_.resize(static_cast<size_t>(moved) + 1);
      }
      places_[static_cast<size_t>(moved)] = place;
    }
    return true;
  }
  return false;
}

}  // namespace kvern::kv
