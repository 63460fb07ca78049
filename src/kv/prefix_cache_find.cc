// PrefixCache's reading half: what can be used again, and why the rest cannot.
#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "kv/prefix_cache.h"

namespace kvern::kv {
bool PrefixCache::IsRowIndependent() const {
  for (size_t i = 0; i < pool_->num_groups(); ++i) {
    if (!pool_->group(static_cast<GroupId>(i)).row_independent) return false;
  }
  return true;
}

void PrefixCache::CopyPath(const Node* node, GroupId group, std::span<BlockId> blocks) const {
  for (; !node->is_root(); node = node->parent) {
    const size_t first = node->position / tree_.block_tokens();
    for (size_t i = 0; i < node->num_blocks(); ++i) {
      blocks[first + i] = *node->slots[i * tree_.num_groups() + Index(group)];
    }
  }
}

Prefix PrefixCache::Find(NamespaceId ns, std::span<const TokenId> tokens, size_t max_hit) const {
  Prefix prefix;
  prefix.match = tree_.Find(RootOf(ns), tokens);
  prefix.num_blocks = prefix.match.num_blocks;
  if (prefix.match.next_tokens > 0 && IsRowIndependent()) {
    prefix.num_partial = prefix.match.next_tokens;
    prefix.partial_node = prefix.match.next;
    prefix.partial_block = prefix.match.next_block;
  }
  prefix = Limit(prefix, max_hit);
  return is_hybrid() ? Shorten(prefix) : prefix;
}

Prefix PrefixCache::Limit(Prefix prefix, size_t max_hit) const {
  const size_t block_tokens = tree_.block_tokens();
  const size_t num_blocks = max_hit / block_tokens;
  if (num_blocks < prefix.num_blocks) {
    prefix.num_blocks = num_blocks;
    prefix.num_partial = IsRowIndependent() ? max_hit % block_tokens : 0;
    prefix.partial_node = NodeWith(prefix.match.node, num_blocks);
    prefix.partial_block = num_blocks - prefix.partial_node->position / block_tokens;
  } else if (num_blocks == prefix.num_blocks) {
    prefix.num_partial = std::min(prefix.num_partial, max_hit % block_tokens);
  }
  return prefix;
}

// One walk along the path: in each group, how many blocks in a row are there up to here?
Prefix PrefixCache::Shorten(const Prefix& prefix) const {
  const size_t block_tokens = tree_.block_tokens();
  std::vector<size_t> runs(aux_groups_.size(), 0);
  const auto has_all = [&](size_t length, size_t num_partial) -> std::optional<GroupId> {
    for (size_t i = 0; i < aux_groups_.size(); ++i) {
      const GroupSpec& spec = pool_->group(aux_groups_[i]);
      const bool is_state = spec.kind == GroupKind::kState;
      const size_t needed = is_state ? 1 : std::min<size_t>(length, spec.window - 1);
      const size_t held = is_state ? runs[i] : runs[i] * block_tokens + num_partial;
      if (held < needed) return aux_groups_[i];
    }
    return std::nullopt;
  };
  const auto advance = [&](const Node& node, size_t block) {
    for (size_t i = 0; i < aux_groups_.size(); ++i) {
      const BlockSlot slot = node.slots[block * tree_.num_groups() + Index(aux_groups_[i])];
      runs[i] = slot ? runs[i] + 1 : 0;
    }
  };
  Prefix best = prefix;
  best.num_blocks = best.num_partial = 0;
  std::optional<GroupId> lacking;
  std::vector<const Node*> path;
  if (prefix.num_blocks > 0) {
    for (const Node* node = NodeWith(prefix.match.node, prefix.num_blocks - 1); !node->is_root();
         node = node->parent) {
      path.push_back(node);
    }
  }
  std::ranges::reverse(path);
  size_t num_blocks = 0;
  for (const Node* node : path) {
    for (size_t i = 0; i < node->num_blocks() && num_blocks < prefix.num_blocks; ++i) {
      advance(*node, i);
      ++num_blocks;
      lacking = has_all(num_blocks * block_tokens, 0);
      if (!lacking) best.num_blocks = num_blocks;
    }
  }
  if (prefix.num_partial == 0) {
    best.short_group = lacking;
    return best;
  }
  // In the last, partial block a state counts if it is that of just these tokens; and a window
  // group must have the block, or see nothing of it.
  const Node& node = *prefix.partial_node;
  const bool is_whole_tail = node.tokens.size() == prefix.num_partial;
  const std::vector<size_t> runs_before = runs;
  advance(node, prefix.partial_block);
  bool is_there = true;
  for (size_t i = 0; i < aux_groups_.size(); ++i) {
    const GroupSpec& spec = pool_->group(aux_groups_[i]);
    const bool has_block = runs[i] > 0;
    if (spec.kind == GroupKind::kState) {
      if (!has_block || !is_whole_tail) runs[i] = 0;
    } else {
      if (!has_block && spec.window > 1) is_there = false;
      runs[i] = runs_before[i];
    }
  }
  const size_t length = prefix.num_blocks * block_tokens + prefix.num_partial;
  lacking = has_all(length, prefix.num_partial);
  if (is_there && !lacking) return prefix;
  best.short_group = lacking.value_or(aux_groups_[0]);
  return best;
}

std::vector<Miss> PrefixCache::Explain(NamespaceId ns, std::span<const TokenId> tokens,
                                       const Prefix& prefix) const {
  const size_t block_tokens = tree_.block_tokens();
  const size_t size = tokens.size();
  const size_t held = prefix.num_blocks * block_tokens + prefix.num_partial;
  const size_t found =
      prefix.match.num_blocks * block_tokens + (IsRowIndependent() ? prefix.match.next_tokens : 0);
  std::vector<Miss> misses;
  if (held == size) {
    misses.push_back({.reason = MissReason::kLogitsNeeded, .position = size - 1, .num_tokens = 1});
    return misses;
  }
  if (held < found) {
    Miss miss{.reason = MissReason::kLogitsNeeded, .position = held, .num_tokens = found - held};
    if (prefix.short_group) {
      miss.reason = MissReason::kGroupNotHeld;
      miss.group = prefix.short_group;
    }
    misses.push_back(std::move(miss));
  }
  if (found < size) misses.push_back(ExplainEnd(ns, tokens, prefix.match, found));
  return misses;
}

Miss PrefixCache::ExplainEnd(NamespaceId ns, std::span<const TokenId> tokens, const Match& match,
                             size_t position) const {
  const size_t block_tokens = tree_.block_tokens();
  Miss miss{.position = position, .num_tokens = tokens.size() - position};
  const auto rest = tokens.subspan(match.num_blocks * block_tokens);
  const auto block = rest.first(std::min<size_t>(rest.size(), block_tokens));
  const uint64_t before =
      match.num_blocks == 0 ? RootOf(ns) + 1 : match.node->blocks[match.num_in_node - 1].chain;
  if (const auto record = history_.Find(RadixTree::Chain(before, block))) {
    miss.reason = MissReason::kEvicted;
    miss.when_us = record->when_us;
    miss.cause =
        record->cause == EvictionCause::kPolicy ? options_.policy->name : ToString(record->cause);
    return miss;
  }
  const size_t parting = match.num_blocks * block_tokens + match.next_tokens;
  if (match.next != nullptr && parting > 0 && parting < tokens.size()) {
    const size_t in_node = match.next_block * block_tokens + match.next_tokens;
    if (in_node < match.next->tokens.size()) {
      miss.reason = MissReason::kOtherToken;
      miss.differs_at = parting;
      miss.wanted = tokens[parting];
      miss.cached = match.next->tokens[in_node];
      return miss;
    }
  }
  if (parting == 0 && block.size() == block_tokens &&
      first_blocks_.contains(Hash64(std::as_bytes(block), 0))) {
    miss.reason = MissReason::kOtherNamespace;
    return miss;
  }
  miss.reason = history_.has_forgotten() ? MissReason::kUnknown : MissReason::kNeverSeen;
  return miss;
}

}  // namespace kvern::kv
