// PrefixCache's quotas: how much an account may have, and what others must leave it.
#include <algorithm>

#include "base/check.h"
#include "kv/prefix_cache.h"

namespace kvern::kv {
namespace {

size_t Minus(size_t from, size_t bytes) { return from - std::min(from, bytes); }

size_t UsedBytes(const NamespaceUsage& usage) {
  return usage.active_bytes + usage.cached_bytes + usage.reserved_bytes;
}

}  // namespace

PrefixCache::Order PrefixCache::MakeOrder() const {
  Order order;
  for (auto& policy : order) policy = options_.policy->make();
  return order;
}

PrefixCache::Order& PrefixCache::OrderOf(const Node& node) {
  if (accounts_.empty()) return common_;
  const auto found = accounts_.find(owners_[node.root]);
  return found == accounts_.end() ? common_ : found->second.order;
}

void PrefixCache::SetQuotas(const std::map<OwnerId, Quota>& quotas) {
  for (auto& [owner, account] : accounts_) account.quota = {};
  std::vector<Node*> candidates;  // of accounts that get an order of their own
  for (uint32_t id = 0; id < tree_.max_node_id(); ++id) {
    Node* const node = tree_.node(id);
    if (node == nullptr || !node->is_candidate) continue;
    const OwnerId owner = owners_[node->root];
    if (quotas.contains(owner) && !accounts_.contains(owner)) candidates.push_back(node);
  }
  for (Node* const node : candidates) RemoveCandidate(node);
  for (const auto& [owner, quota] : quotas) {
    Account& account = accounts_[owner];
    if (account.order[0] == nullptr) account.order = MakeOrder();
    account.quota = quota;
  }
  for (Node* const node : candidates) AddCandidate(node);
  for (const auto& [owner, quota] : quotas) KeepToShare(owner, 0);
}

// Evicts of its own what `more_bytes` would make too much, as far as there is any.
void PrefixCache::KeepToShare(OwnerId owner, size_t more_bytes) {
  const auto found = accounts_.find(owner);
  if (found == accounts_.end()) return;
  const size_t share = found->second.quota.share_bytes;
  while (UsedBytes(pool_->usage(owner)) > Minus(share, more_bytes)) {
    if (!EvictOne({.owner = owner, .own_only = true}, {})) return;
  }
}

bool PrefixCache::MayTakeFrom(OwnerId owner, const Claim& claim) const {
  if (owner == claim.owner) return true;
  if (claim.own_only) return false;
  const auto found = accounts_.find(owner);
  if (claim.despite_floors || found == accounts_.end()) return true;
  const size_t floor = found->second.quota.floor_bytes;
  return floor == 0 || pool_->usage(owner).cached_bytes >= floor + leaf_bytes_;
}

// What is cached of others, and not to be taken from them.
size_t PrefixCache::BytesWithheld(OwnerId from) const {
  size_t bytes = 0;
  for (const auto& [owner, account] : accounts_) {
    if (owner == from) continue;
    bytes += std::min(pool_->usage(owner).cached_bytes, account.quota.floor_bytes);
  }
  return bytes;
}

Room PrefixCache::RoomFor(OwnerId owner) const {
  const StateCounts bytes = pool_->stats().bytes;
  Room room{.share = SIZE_MAX, .pool = bytes.free + bytes.cached - BytesWithheld(owner)};
  const auto found = accounts_.find(owner);
  if (found == accounts_.end() || found->second.quota.share_bytes == SIZE_MAX) return room;
  const NamespaceUsage usage = pool_->usage(owner);
  room.share = Minus(found->second.quota.share_bytes, usage.active_bytes + usage.reserved_bytes);
  return room;
}

Room PrefixCache::CapacityOf(std::optional<OwnerId> owner) const {
  Room room{.share = SIZE_MAX, .pool = pool_->budget_bytes()};
  for (const auto& [other, account] : accounts_) {
    if (owner == other) {
      room.share = account.quota.share_bytes;
    } else {
      room.pool = Minus(room.pool, account.quota.floor_bytes);
    }
  }
  return room;
}

size_t PrefixCache::BytesOf(const BlockCounts& num_blocks) const {
  size_t bytes = 0;
  for (size_t i = 0; i < pool_->num_groups(); ++i) {
    bytes += num_blocks[i] * pool_->group(static_cast<GroupId>(i)).block_bytes;
  }
  return bytes;
}

bool PrefixCache::HasRoom(OwnerId owner, const BlockCounts& num_blocks) const {
  if (!pool_->CanReserve(num_blocks)) return false;
  const auto found = accounts_.find(owner);
  if (found == accounts_.end()) return true;
  const size_t used = UsedBytes(pool_->usage(owner));
  return BytesOf(num_blocks) <= Minus(found->second.quota.share_bytes, used);
}

bool PrefixCache::CouldMakeRoom(OwnerId owner, const BlockCounts& num_blocks) const {
  if (!pool_->CouldReserve(num_blocks)) return false;
  if (accounts_.empty()) return true;
  const size_t bytes = BytesOf(num_blocks);
  const StateCounts pool = pool_->stats().bytes;
  const size_t withheld = BytesWithheld(owner);
  if (withheld > 0 && bytes + withheld > pool.free + pool.cached) return false;
  const auto found = accounts_.find(owner);
  if (found == accounts_.end()) return true;
  const NamespaceUsage usage = pool_->usage(owner);
  return usage.active_bytes + usage.reserved_bytes + bytes <= found->second.quota.share_bytes;
}

}  // namespace kvern::kv
