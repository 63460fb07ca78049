// KvCache: room for blocks, and what accounts may have of it.
#include <algorithm>

#include "base/result.h"
#include "kv/kv_cache_impl.h"

namespace kvern::kv {

Status KvCache::Impl::MakeRoom(NamespaceId ns, const BlockCounts& num_blocks) {
  const OwnerId owner = OwnerOf(ns);
  if (prefixes.HasRoom(owner, num_blocks)) return {};
  const WriterLock lock(mutex);
  if (prefixes.MakeRoom(owner, num_blocks)) return {};
  const StateCounts bytes = pool.stats().bytes;
  size_t needed = 0;
  for (size_t i = 0; i < num_groups(); ++i) needed += num_blocks[i] * group(i).block_bytes;
  if (needed > prefixes.RoomFor(owner).share) {
    const NamespaceUsage used = pool.usage(owner);
    return Errorf(
        ErrorCode::kOutOfMemory,
        "KV memory: {} bytes of blocks needed; of the {} that are this account's share {} are "
        "active and {} reserved: wait for one of its sequences to end, or raise the share",
        needed, quotas.at(owner).share_bytes, used.active_bytes, used.reserved_bytes);
  }
  return Errorf(
      ErrorCode::kOutOfMemory,
      "KV memory: {} bytes of blocks needed; of {} in the budget {} are active, {} reserved, "
      "{} cached and {} free: wait for a sequence to end, or use a larger budget",
      needed, pool.budget_bytes(), bytes.active, bytes.reserved, bytes.cached, bytes.free);
}

Status KvCache::MakeRoom(NamespaceId ns, size_t num_blocks) {
  BlockCounts wanted = {};
  std::fill_n(wanted.begin(), impl_->num_groups(), num_blocks);
  return impl_->MakeRoom(ns, wanted);
}

OwnerId KvCache::Impl::OwnerOf(const std::string& account) {
  if (account.empty()) return OwnerId{num_owners++};
  const auto [entry, is_new] = accounts.try_emplace(account, OwnerId{num_owners});
  if (is_new) ++num_owners;
  return entry->second;
}

Status KvCache::SetQuotas(std::span<const AccountQuota> quotas) {
  const auto whole_blocks = [&](size_t bytes) {
    size_t block_bytes = 0;
    for (size_t i = 0; i < impl_->num_groups(); ++i) block_bytes += impl_->group(i).block_bytes;
    return bytes == SIZE_MAX ? bytes : bytes - bytes % block_bytes;
  };
  size_t left = impl_->pool.budget_bytes();
  for (const AccountQuota& row : quotas) {
    const size_t floor = whole_blocks(row.quota.floor_bytes);
    if (floor > left || floor > row.quota.share_bytes) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "KvCache::SetQuotas: the floor of {}, {} bytes, is more than {}: lower it",
                    row.account, floor,
                    floor > left ? "other floors leave of the budget" : "its share");
    }
    left -= floor;
  }
  const WriterLock lock(impl_->mutex);
  impl_->quotas.clear();
  for (const AccountQuota& row : quotas) {
    impl_->quotas[impl_->OwnerOf(row.account)] = {
        .share_bytes = whole_blocks(row.quota.share_bytes),
        .floor_bytes = whole_blocks(row.quota.floor_bytes)};
  }
  impl_->prefixes.SetQuotas(impl_->quotas);
  return {};
}

Room KvCache::RoomFor(NamespaceId ns) const { return impl_->prefixes.RoomFor(impl_->OwnerOf(ns)); }

Quota KvCache::quota(std::string_view account) const {
  const ReaderLock lock(impl_->mutex);
  const auto owner = impl_->accounts.find(account);
  if (owner == impl_->accounts.end()) return {};
  const auto found = impl_->quotas.find(owner->second);
  return found == impl_->quotas.end() ? Quota() : found->second;
}

Room KvCache::CapacityOf(std::string_view account) const {
  const ReaderLock lock(impl_->mutex);
  const auto owner = impl_->accounts.find(account);
  const bool is_known = owner != impl_->accounts.end();
  return impl_->prefixes.CapacityOf(is_known ? std::optional(owner->second) : std::nullopt);
}

}  // namespace kvern::kv
