// What the library tells about itself: statistics, explanations, the tree as data.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace kvern::kv {
namespace {

constexpr std::array<std::string_view, kNumMissReasons> kMissReasons = {
    "never_seen",    "evicted",        "unknown",     "other_token", "other_namespace",
    "logits_needed", "group_not_held", "tier_failed", "policy_off"};

constexpr std::array<std::string_view, kNumEvictionCauses> kEvictionCauses = {
    "policy", "window", "expired", "dropped", "unreachable", "share"};

std::string Describe(const Miss& miss) {
  switch (miss.reason) {
    case MissReason::kEvicted:
      return fmt::format("evicted by {} at {} us", miss.cause, *miss.when_us);
    case MissReason::kOtherToken:
      return fmt::format("token {} at {}, where cached text has {}",
                         static_cast<uint32_t>(*miss.wanted), *miss.differs_at,
                         static_cast<uint32_t>(*miss.cached));
    case MissReason::kGroupNotHeld:
      return fmt::format("group {} no longer holds what is needed there", Index(*miss.group));
    case MissReason::kTierFailed:
      return fmt::format("the tier failed: {}", miss.cause);
    case MissReason::kNeverSeen:
      return "never seen";
    case MissReason::kUnknown:
      return "not there; whether it was evicted is beyond the history";
    case MissReason::kOtherNamespace:
      return "only another namespace has it";
    case MissReason::kLogitsNeeded:
      return "held, but its logits are needed";
    case MissReason::kPolicyOff:
      return "the request does not use the cache";
  }
  return "";
}

}  // namespace

std::string_view ToString(MissReason reason) { return kMissReasons[static_cast<size_t>(reason)]; }
std::string_view ToString(EvictionCause cause) {
  return kEvictionCauses[static_cast<size_t>(cause)];
}

size_t PromptSplit::missed() const { return std::accumulate(miss.begin(), miss.end(), size_t{0}); }

bool TrimMiss(Miss& miss, size_t position) {
  const size_t end = miss.position + miss.num_tokens;
  if (end <= position) return false;
  miss.position = std::max(miss.position, position);
  miss.num_tokens = end - miss.position;
  return true;
}

std::string Explanation::ToText() const {
  std::string text =
      fmt::format("{} tokens hit: {} in RAM, {} on the tier, {} in flight, {} of a partial block\n",
                  split.hit(), split.ram, split.tier, split.in_flight, split.partial);
  for (const Miss& miss : misses) {
    text += fmt::format("{} tokens missed from {} on: {}\n", miss.num_tokens, miss.position,
                        Describe(miss));
  }
  return text;
}

Explanation KvCache::Explain(NamespaceId ns, std::span<const TokenId> tokens) const {
  CHECK(!tokens.empty());
  const ReaderLock lock(impl_->mutex);
  const Prefix prefix = impl_->prefixes.Find(ns, tokens, SIZE_MAX);
  Explanation explanation;
  explanation.nodes_visited = prefix.match.nodes_visited;
  PromptSplit& split = explanation.split;
  split.ram = prefix.num_blocks * impl_->block_tokens;
  const size_t num_tier = impl_->NumOnTier(ns, tokens, prefix);
  const size_t held = split.ram + prefix.num_partial;
  const auto offer = impl_->in_flight.Find(ns, tokens, std::max(held, split.ram + num_tier));
  if (offer) {
    split.in_flight = offer->production.end - split.ram;
  } else if (num_tier > prefix.num_partial) {
    split.tier = num_tier;
  } else {
    split.partial = prefix.num_partial;
  }
  for (Miss& miss : impl_->prefixes.Explain(ns, tokens, prefix)) {
    const bool is_left = held == tokens.size() || TrimMiss(miss, split.hit());
    if (is_left) explanation.misses.push_back(std::move(miss));
  }
  if (split.hit() == tokens.size()) {
    explanation.misses = {
        {.reason = MissReason::kLogitsNeeded, .position = tokens.size() - 1, .num_tokens = 1}};
    for (size_t* part : {&split.partial, &split.in_flight, &split.tier, &split.ram}) {
      if (*part == 0) continue;
      --*part;
      break;
    }
  }
  for (const Miss& miss : explanation.misses) {
    split.miss[static_cast<size_t>(miss.reason)] += miss.num_tokens;
  }
  return explanation;
}

KvStats KvCache::stats() const {
  const Counters& counters = impl_->counters;
  const PoolStats pool = impl_->pool.stats();
  KvStats stats;
  stats.bytes = pool.bytes;
  stats.peak_bytes = pool.peak_bytes;
  stats.budget_bytes = impl_->pool.budget_bytes();
  stats.prompts = counters.prompts.Read();
  stats.resumes = counters.resumes.Read();
  stats.num_prompts = counters.prompts.count();
  stats.num_resumes = counters.resumes.count();
  for (size_t i = 0; i < kNumEvictionCauses; ++i) {
    stats.evicted_blocks[i] = counters.evicted_blocks[i].Read();
  }
  for (size_t i = 0; i < kNumRecordRefusals; ++i) {
    stats.records_refused[i] = counters.records_refused[i].Read();
  }
  stats.blocks_published = counters.blocks_published.Read();
  stats.blocks_merged = counters.blocks_merged.Read();
  stats.rows_copied = counters.rows_copied.Read();
  stats.one_answer_violations = counters.one_answer_violations.Read();
  stats.loads_started = counters.loads_started.Read();
  stats.blocks_loaded = counters.blocks_loaded.Read();
  stats.blocks_failed = counters.blocks_failed.Read();
  stats.take_overs = impl_->in_flight.num_take_overs();
  stats.lifetime_us = counters.lifetime_us.Read();
  stats.idle_before_evict_us = counters.idle_before_evict_us.Read();
  stats.reuse_gap_us = counters.reuse_gap_us.Read();
  const ReaderLock lock(impl_->mutex);
  stats.index_bytes = impl_->prefixes.index_bytes() + impl_->pool.metadata_bytes();
  return stats;
}

NamespaceUsage KvCache::usage(NamespaceId ns) const {
  const ReaderLock lock(impl_->mutex);
  return impl_->pool.usage(impl_->OwnerOf(ns));
}

const KvCacheOptions& KvCache::options() const { return impl_->options; }

std::vector<TreeNode> KvCache::Tree(NamespaceId ns) const {
  const ReaderLock lock(impl_->mutex);
  std::vector<TreeNode> nodes;
  std::vector<std::pair<const Node*, size_t>> todo = {{impl_->prefixes.tree().root(RootOf(ns)), 0}};
  while (!todo.empty()) {
    const auto [node, depth] = todo.back();
    todo.pop_back();
    nodes.push_back({.depth = depth,
                     .position = node->position,
                     .tokens = node->tokens,
                     .num_holders = node->num_pins,
                     .num_uses = node->num_uses});
    if (node->is_leaf()) continue;
    // The first child is to be taken from the end first.
    const auto first = static_cast<ptrdiff_t>(todo.size());
    for (const Node* child : *node->children) todo.emplace_back(child, depth + 1);
    std::reverse(todo.begin() + first, todo.end());
  }
  return nodes;
}

void KvCache::CheckInvariants() const {
  impl_->pool.CheckInvariants();
  impl_->prefixes.CheckInvariants();
  impl_->in_flight.CheckInvariants();
  if (impl_->tier_io != nullptr) impl_->tier_io->CheckInvariants();
}

}  // namespace kvern::kv
