#include "kv/prefix_cache.h"

#include <algorithm>

#include "base/check.h"
#include "kv/counters.h"
#include "kv/tokens.h"

namespace kvern::kv {
namespace {

int64_t AddSaturated(int64_t time, int64_t duration) {
  return duration > INT64_MAX - std::max<int64_t>(time, 0) ? INT64_MAX : time + duration;
}

}  // namespace

PrefixCache::PrefixCache(Options options, BlockPool* pool, Counters* counters)
    : options_(std::move(options)),
      pool_(pool),
      counters_(counters),
      tree_(options_.block_tokens, pool->num_groups()),
      history_(options_.history_blocks) {
  for (size_t i = 0; i < pool_->num_groups(); ++i) {
    const auto group = static_cast<GroupId>(i);
    (pool_->group(group).kind == GroupKind::kFull ? full_groups_ : aux_groups_).push_back(group);
  }
  for (const GroupId group : full_groups_) leaf_bytes_ += pool_->group(group).block_bytes;
  common_ = MakeOrder();
  if (is_hybrid()) pool_->set_on_cached([this](BlockId block) { NoteCached(block); });
}

PrefixCache::~PrefixCache() {
  DropCached({});
  pool_->set_on_cached({});
}

void PrefixCache::SetTime(int64_t now_us) {
  CHECK(now_us >= now_us_);
  now_us_ = now_us;
  EndSpans();
}

NamespaceId PrefixCache::AddNamespace(std::string tenant, OwnerId owner) {
  tenants_.push_back(std::move(tenant));
  owners_.push_back(owner);
  const uint32_t root = tree_.AddRoot()->root;
  if (root == 1 && !tree_.root(0)->is_leaf()) {
    for (const Node* node : *tree_.root(0)->children) CountFirstBlock(*node, true);
  }
  return static_cast<NamespaceId>(root);
}

// ---- Pins

void PrefixCache::Pin(Node* node) {
  for (; node != nullptr; node = node->parent) {
    if (node->num_pins++ > 0) continue;
    if (node->is_candidate) RemoveCandidate(node);
    HoldFull(node, true);
  }
}

void PrefixCache::Unpin(Node* node) {
  while (node != nullptr) {
    Node* const parent = node->parent;
    CHECK(node->num_pins > 0);
    if (--node->num_pins == 0 && !node->is_root()) {
      HoldFull(node, false);
      node->last_used_us = now_us_;
      if (num_detached_ > 0 && IsInDetached(node)) {
        FreeDetached(node);
      } else {
        Reconsider(node);
      }
    }
    node = parent;
  }
}

void PrefixCache::HoldFull(Node* node, bool hold) {
  scratch_.clear();
  for (size_t block = 0; block < node->num_blocks(); ++block) {
    for (const GroupId group : full_groups_) {
      scratch_.push_back(*tree_.Slot(node, block, Index(group)));
    }
  }
  if (hold) {
    pool_->Retain(scratch_);
  } else {
    pool_->Release(scratch_);
  }
}

Node* PrefixCache::NodeWith(Node* node, size_t block) const {
  while (!node->is_root() && node->position / tree_.block_tokens() > block) node = node->parent;
  return node;
}

Node* PrefixCache::PinPrefix(const Match& match, size_t num_blocks) {
  Node* node =
      num_blocks == 0 ? tree_.root(match.node->root) : NodeWith(match.node, num_blocks - 1);
  const size_t num_in_node = num_blocks - node->position / tree_.block_tokens();
  if (num_in_node < node->num_blocks()) node = Split(node, num_in_node);
  Pin(node);
  return node;
}

Node* PrefixCache::MovePin(Node* node, size_t num_blocks) {
  Node* const target = PinPrefix({.node = node}, num_blocks);
  Unpin(node);
  return target;
}

void PrefixCache::Use(Node* node, Retention retention, std::optional<int64_t> ttl_us) {
  if (!node->is_root()) {
    counters_->reuse_gap_us.Add(static_cast<uint64_t>(now_us_ - node->last_used_us));
  }
  for (; node != nullptr; node = node->parent) {
    ++node->num_uses;
    node->last_used_us = now_us_;
    node->retention = std::max(node->retention, retention);
    node->ttl_us = std::max(node->ttl_us, ttl_us.value_or(INT64_MAX));
  }
}

Node* PrefixCache::Split(Node* node, size_t num_blocks) {
  const bool was_candidate = node->is_candidate;
  if (was_candidate) RemoveCandidate(node);  // what its eviction frees changes
  Node* const upper = tree_.Split(node, num_blocks);
  if (upper->span_until_us != INT64_MIN) spans_.emplace(upper->span_until_us, upper->id);
  if (is_hybrid() && IsFindable(upper)) {
    NotePlaces(upper, 0);
    aux_stale_.insert(upper->id);
  }
  if (was_candidate) AddCandidate(node);
  return upper;
}

// ---- Publication

PrefixCache::Published PrefixCache::Publish(const Publication& publication) {
  const auto first_block = publication.tokens.first(tree_.block_tokens());
  Node* node = tree_.FindChild(*publication.at, first_block);
  if (node != nullptr) {
    const size_t same = CommonPrefix(node->tokens, publication.tokens) / tree_.block_tokens();
    if (same < node->num_blocks()) node = Split(node, same);
    Pin(node);
    Unpin(publication.at);
    return {node, same, /*existing=*/true, node->slots};
  }
  DropTailsOf(publication.at, first_block);
  const RadixTree::NewBlocks blocks{publication.tokens, publication.slots, now_us_};
  size_t first = 0;
  if (MayExtend(*publication.at, publication)) {
    node = publication.at;
    first = node->num_blocks();
    tree_.Extend(node, blocks);
    if (aux_junction_.erase(node->id) > 0) aux_stale_.insert(node->id);
  } else {
    node = tree_.AddChild(publication.at, blocks);
    node->num_pins = 1;
    node->retention = publication.retention;
    node->ttl_us = publication.ttl_us.value_or(INT64_MAX);
    node->last_used_us = now_us_;
    if (publication.at->is_candidate) RemoveCandidate(publication.at);
    CountFirstBlock(*node, true);
  }
  TakeOver(node, first, publication);
  return {node, node->num_blocks() - first, /*existing=*/false, {}};
}

// Nobody but the publisher has it, so nobody is made to hold more than it looked up.
bool PrefixCache::MayExtend(const Node& node, const Publication& publication) const {
  return !node.is_root() && node.is_leaf() && node.num_pins == 1 && !node.is_detached &&
         node.span_until_us == INT64_MIN && node.retention == publication.retention &&
         node.ttl_us == publication.ttl_us.value_or(INT64_MAX);
}

void PrefixCache::TakeOver(Node* node, size_t first_block, const Publication& publication) {
  for (const BlockSlot slot : publication.slots) {
    if (slot) pool_->Publish(*slot);
  }
  if (options_.keep_keys) {
    node->keys.insert(node->keys.end(), publication.keys.begin(), publication.keys.end());
  }
  counters_->blocks_published.Add(node->num_blocks() - first_block);
  if (is_hybrid()) NotePlaces(node, first_block);
}

void PrefixCache::NotePlaces(Node* node, size_t first_block) {
  const size_t first = node->position / tree_.block_tokens();
  for (size_t block = first_block; block < node->num_blocks(); ++block) {
    for (size_t group = 0; group < tree_.num_groups(); ++group) {
      const BlockSlot slot = tree_.Slot(node, block, group);
      if (!slot) continue;
      const auto index = static_cast<size_t>(*slot);
      if (index >= places_.size()) places_.resize(index + 1);
      places_[index] = {node, first + block};
    }
  }
}

void PrefixCache::FillSlot(Node* node, size_t block, GroupId group, BlockId id) {
  pool_->Publish(id);
  tree_.Slot(node, block, Index(group)) = BlockSlot(id);
  node->aux_cursor = std::min(node->aux_cursor, static_cast<uint32_t>(block));
  NotePlaces(node, block);
}

void PrefixCache::PublishTail(const Publication& tail) {
  if (!tail.at->is_leaf()) {
    const auto longer = tail.at->children->lower_bound(tail.tokens);
    if (longer != tail.at->children->end() &&
        CommonPrefix((*longer)->tokens, tail.tokens) == tail.tokens.size()) {
      return;
    }
  }
  DropTailsOf(tail.at, tail.tokens);
  Node* const node = tree_.AddChild(tail.at, {tail.tokens, tail.slots, now_us_});
  node->retention = tail.retention;
  node->ttl_us = tail.ttl_us.value_or(INT64_MAX);
  node->last_used_us = now_us_;
  if (tail.at->is_candidate) RemoveCandidate(tail.at);
  TakeOver(node, 0, tail);
  AddCandidate(node);
}

// Tails that begin `text` have nothing that it does not have. There is one at most.
void PrefixCache::DropTailsOf(Node* parent, std::span<const TokenId> text) {
  if (parent->is_leaf()) return;
  const auto longer = parent->children->lower_bound(text);
  if (longer == parent->children->begin()) return;
  Node* const tail = *std::prev(longer);
  if (CommonPrefix(tail->tokens, text) == tail->tokens.size()) {
    EvictWhole(tail, EvictionCause::kUnreachable);
  }
}

void PrefixCache::Withdraw(Node* node, size_t block) {
  if (block > 0) Split(node, block);
  UnpublishBelow(node);
  Unlink(node);
  ++num_detached_;
  if (node->num_pins == 0) FreeDetached(node);
}

void PrefixCache::UnpublishBelow(Node* node) {
  if (node->is_candidate) RemoveCandidate(node);
  EndSpan(node);
  for (BlockSlot& slot : node->slots) {
    if (slot) pool_->Unpublish(*slot);
  }
  for (size_t i = 0; i < node->slots.size(); ++i) {
    const GroupId group = static_cast<GroupId>(i % tree_.num_groups());
    if (pool_->group(group).kind != GroupKind::kFull) node->slots[i] = {};
  }
  aux_stale_.erase(node->id);
  aux_junction_.erase(node->id);
  if (node->is_leaf()) return;
  for (Node* child : *node->children) UnpublishBelow(child);
}

bool PrefixCache::IsInDetached(const Node* node) const {
  while (node != nullptr && !node->is_detached) node = node->parent;
  return node != nullptr;
}

// Nobody holds it or anything below it.
void PrefixCache::FreeDetached(Node* node) {
  while (!node->is_leaf()) FreeDetached(*node->children->begin());
  if (node->is_detached) {
    --num_detached_;
  } else {
    tree_.Detach(node);
  }
  tree_.Destroy(node);
}

// ---- Spans

size_t PrefixCache::FullBytes(const Node& node) const { return leaf_bytes_ * node.num_blocks(); }

SpanGrant PrefixCache::KeepSpan(NamespaceId ns, std::span<const TokenId> tokens, int64_t ttl_us) {
  if (ttl_us <= 0) return EndSpansOf(ns, tokens);
  const int64_t until_us = AddSaturated(now_us_, ttl_us);
  SpanGrant grant{.num_tokens = 0, .expires_us = until_us};
  const Match match = tree_.Find(RootOf(ns), tokens);
  size_t& used = span_bytes_[tenants_[RootOf(ns)]];
  while (grant.num_tokens < match.num_blocks * tree_.block_tokens()) {
    const size_t block = grant.num_tokens / tree_.block_tokens();
    Node* node = NodeWith(match.node, block);
    size_t num_blocks = std::min(node->num_blocks(), match.num_blocks - block);
    if (node->span_until_us == INT64_MIN) {
      const size_t budget = options_.span_bytes_per_tenant;
      num_blocks = std::min(num_blocks, (budget - std::min(budget, used)) / leaf_bytes_);
      if (num_blocks == 0) break;
      used += num_blocks * leaf_bytes_;
    }
    if (num_blocks < node->num_blocks()) node = Split(node, num_blocks);
    ChargeSpan(node, until_us);
    grant.num_tokens += num_blocks * tree_.block_tokens();
  }
  return grant;
}

SpanGrant PrefixCache::EndSpansOf(NamespaceId ns, std::span<const TokenId> tokens) {
  const Match match = tree_.Find(RootOf(ns), tokens);
  for (size_t block = 0; block < match.num_blocks;) {
    Node* const node = NodeWith(match.node, block);
    block += node->num_blocks();
    const bool was_candidate = node->is_candidate;
    if (was_candidate) RemoveCandidate(node);
    EndSpan(node);
    if (was_candidate) AddCandidate(node);
  }
  return {.num_tokens = 0, .expires_us = now_us_};
}

void PrefixCache::ChargeSpan(Node* node, int64_t until_us) {
  if (until_us <= node->span_until_us) return;
  const bool was_candidate = node->is_candidate;
  if (was_candidate) RemoveCandidate(node);
  spans_.erase({node->span_until_us, node->id});
  node->span_until_us = until_us;
  spans_.emplace(until_us, node->id);
  if (was_candidate) AddCandidate(node);
}

void PrefixCache::EndSpan(Node* node) {
  if (node->span_until_us == INT64_MIN) return;
  spans_.erase({node->span_until_us, node->id});
  node->span_until_us = INT64_MIN;
  span_bytes_[tenants_[node->root]] -= FullBytes(*node);
}

void PrefixCache::EndSpans() {
  while (!spans_.empty() && spans_.begin()->first <= now_us_) {
    Node* const node = tree_.node(spans_.begin()->second);
    const bool was_candidate = node->is_candidate;
    if (was_candidate) RemoveCandidate(node);
    EndSpan(node);
    if (was_candidate) AddCandidate(node);
  }
}

// ---- Invariants

size_t PrefixCache::index_bytes() const {
  return tree_.bytes() + history_.bytes() + places_.capacity() * sizeof(Place);
}

void PrefixCache::CheckInvariants() const {
  tree_.CheckInvariants();
  std::map<std::string, size_t> span_bytes;
  for (uint32_t root = 0; root < tree_.num_roots(); ++root) {
    std::vector<const Node*> todo = {tree_.root(root)};
    while (!todo.empty()) {
      const Node* const node = todo.back();
      todo.pop_back();
      CheckNode(*node);
      if (node->span_until_us != INT64_MIN) {
        span_bytes[tenants_[root]] += FullBytes(*node);
        CHECK(spans_.contains({node->span_until_us, node->id}));
      }
      if (!node->is_leaf()) todo.insert(todo.end(), node->children->begin(), node->children->end());
    }
  }
  for (const auto& [tenant, bytes] : span_bytes_) {
    const auto entry = span_bytes.find(tenant);
    CHECK(bytes == (entry == span_bytes.end() ? 0 : entry->second));
    CHECK(bytes <= options_.span_bytes_per_tenant);
  }
}

void PrefixCache::CheckNode(const Node& node) const {
  CHECK(node.is_candidate == (node.num_pins == 0 && node.is_leaf() && !node.is_root()));
  size_t child_pins = 0;
  if (!node.is_leaf()) {
    for (const Node* child : *node.children) child_pins += child->num_pins;
  }
  CHECK(node.num_pins >= child_pins);
  const size_t first = node.position / tree_.block_tokens();
  for (size_t block = 0; block < node.num_blocks(); ++block) {
    for (size_t group = 0; group < tree_.num_groups(); ++group) {
      const BlockSlot slot = node.slots[block * tree_.num_groups() + group];
      const bool is_full = pool_->group(static_cast<GroupId>(group)).kind == GroupKind::kFull;
      CHECK(slot || !is_full);
      if (!slot) continue;
      CHECK(pool_->is_published(*slot));
      CHECK(!is_full || node.num_pins == 0 || pool_->num_references(*slot) > 0);
      if (!is_hybrid()) continue;
      const Place& place = places_[static_cast<size_t>(*slot)];
      CHECK(place.node == &node && place.block == first + block);
      const bool is_listed = aux_stale_.contains(node.id) || aux_junction_.contains(node.id);
      CHECK(is_full || pool_->num_references(*slot) > 0 || node.is_leaf() || is_listed);
    }
  }
}

}  // namespace kvern::kv
