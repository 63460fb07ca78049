// The part of the checker for quotas: what an account has, may have and must be left.
#include <algorithm>

#include "kv/model_check/checker.h"

namespace kvern::kv::model_check {
namespace {

size_t Used(const NamespaceUsage& usage) {
  return usage.active_bytes + usage.cached_bytes + usage.reserved_bytes;
}

}  // namespace

// Two namespaces have one account, and the last has none.
std::string Checker::AccountOf(size_t ns) { return ns == 3 ? "" : ns == 1 ? "b" : "a"; }

// Nobody else has an account like a number.
std::string Checker::ChargedTo(size_t ns) const {
  const std::string account = setup_.has_quotas ? AccountOf(ns) : "";
  return account.empty() ? fmt::format("{}", ns) : account;
}

std::map<std::string, NamespaceUsage> Checker::Usage() const {
  std::map<std::string, NamespaceUsage> usage;
  for (size_t ns = 0; ns < namespaces_.size(); ++ns) {
    usage[ChargedTo(ns)] = cache_->usage(namespaces_[ns]);
  }
  return usage;
}

Quota Checker::QuotaOf(const std::string& account) const {
  const auto found = quotas_.find(account);
  return found == quotas_.end() ? Quota() : found->second;
}

void Checker::SetQuotas(const Operation& operation) {
  SplitMix64 random(operation.random);
  size_t block_bytes = 0;
  for (const GroupSpec& group : setup_.groups) block_bytes += group.block_bytes;
  const size_t num_blocks = setup_.budget_bytes / block_bytes;
  std::vector<AccountQuota> rows;
  std::map<std::string, Quota> quotas;
  size_t floors = 0;
  bool is_valid = true;
  for (const std::string account : {"a", "b"}) {
    if (random.Below(4) == 0) continue;
    Quota quota;
    if (random.Below(3) > 0) quota.share_bytes = random.Below(num_blocks + 1) * block_bytes;
    const size_t most = std::min(quota.share_bytes / block_bytes, num_blocks) / 2;
    if (random.Below(3) > 0) quota.floor_bytes = random.Below(most + 1) * block_bytes;
    if (random.Below(32) == 0) quota.floor_bytes = num_blocks * block_bytes;
    floors += quota.floor_bytes;
    is_valid &= quota.floor_bytes <= quota.share_bytes;
    quotas[account] = quota;
    rows.push_back({account, quota});
    // What is no whole block more makes no difference.
    if (quota.share_bytes != SIZE_MAX) rows.back().quota.share_bytes += random.Below(block_bytes);
  }
  const Status status = cache_->SetQuotas(rows);
  Trace("{} quotas: {}", rows.size(), status.ok() ? "set" : status.error().message);
  Require(status.ok() == (is_valid && floors <= at_rest_.budget_bytes),
          "floors of {} bytes in a budget of {}: {}", floors, at_rest_.budget_bytes,
          status.ok() ? "set" : status.error().message);
  if (!status.ok()) return;
  quotas_ = std::move(quotas);
  for (const auto& [account, usage] : Usage()) {
    const size_t most =
        std::max(QuotaOf(account).share_bytes, usage.active_bytes + usage.reserved_bytes);
    Require(Used(usage) <= most, "{} keeps {} bytes of a share of {}", account, Used(usage), most);
  }
}

// Who has more than its share since that was lowered gets no more.
void Checker::CheckShares() {
  if (!setup_.has_quotas) return;
  const auto now = Usage();
  for (const auto& [account, usage] : now) {
    const size_t most = std::max(QuotaOf(account).share_bytes, Used(last_usage_[account]));
    Require(Used(usage) <= most, "{} has {} bytes of a share of {}", account, Used(usage), most);
  }
  last_usage_ = now;
}

KvStats Checker::StatsBefore() {
  usage_before_ = Usage();
  return cache_->stats();
}

// Where slabs are of several groups, floors give way at last.
void Checker::CheckFloors(size_t wanting_ns) const {
  if (!is_single_ || !setup_.has_quotas) return;
  for (const auto& [account, usage] : Usage()) {
    if (account == ChargedTo(wanting_ns)) continue;
    const size_t least =
        std::min(usage_before_.at(account).cached_bytes, QuotaOf(account).floor_bytes);
    Require(usage.cached_bytes >= least, "{} has {} bytes cached, and a floor of {}", account,
            usage.cached_bytes, least);
  }
}

// One group: what an account could have had before the call.
size_t Checker::RoomBefore(size_t ns) const {
  size_t pool = at_rest_.budget_bytes, share = SIZE_MAX;
  for (const auto& [account, usage] : usage_before_) {
    pool -= usage.active_bytes + usage.reserved_bytes;
    const Quota quota = QuotaOf(account);
    if (account != ChargedTo(ns)) {
      pool -= std::min(usage.cached_bytes, quota.floor_bytes);
    } else if (quota.share_bytes != SIZE_MAX) {
      const size_t held = usage.active_bytes + usage.reserved_bytes;
      share = quota.share_bytes - std::min(quota.share_bytes, held);
    }
  }
  return std::min(pool, share);
}

}  // namespace kvern::kv::model_check
