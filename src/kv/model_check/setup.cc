#include "kv/model_check/setup.h"

namespace kvern::kv::model_check {
namespace {

GroupSpec Full(uint32_t block_tokens, size_t block_bytes) {
  GroupSpec group;
  group.block_tokens = block_tokens;
  group.block_bytes = block_bytes;
  return group;
}

GroupSpec Whole(uint32_t block_tokens, size_t block_bytes) {
  GroupSpec group = Full(block_tokens, block_bytes);
  group.row_independent = false;
  return group;
}

GroupSpec Window(uint32_t window, size_t block_bytes, uint32_t max_rollback) {
  GroupSpec group = Full(4, block_bytes);
  group.kind = GroupKind::kWindow;
  group.window = window;
  group.max_rollback = max_rollback;
  return group;
}

GroupSpec State(size_t block_bytes, uint32_t max_rollback) {
  GroupSpec group = Full(4, block_bytes);
  group.kind = GroupKind::kState;
  group.max_rollback = max_rollback;
  return group;
}

// One group of full attention.
std::vector<CacheSetup> SingleSetups() {
  return {
      {.name = "full",
       .help = "one group, blocks of 4 tokens",
       .groups = {Full(4, 64)},
       .budget_bytes = 24 * 64},
      {.name = "full16",
       .help = "one group, blocks of 16 tokens, slabs of 2 blocks, lfu",
       .groups = {Full(16, 128)},
       .budget_bytes = 21 * 128,
       .min_slab_bytes = 256,
       .eviction = "lfu"},
      {.name = "roomy",
       .help = "nothing is ever evicted, so every lookup is foretold exactly",
       .groups = {Full(4, 64)},
       .budget_bytes = 4096 * 64,
       .min_slab_bytes = 4096,
       .num_namespaces = 4,
       .num_words = 2},
      {.name = "s3fifo",
       .help = "one group, s3fifo, a history of 6 evictions",
       .groups = {Full(4, 64)},
       .budget_bytes = 32 * 64,
       .eviction = "s3fifo",
       .history_blocks = 6},
      {.name = "cost",
       .help = "one group, cost, a pool that two texts fill",
       .groups = {Full(4, 64)},
       .budget_bytes = 12 * 64,
       .eviction = "cost"},
      {.name = "whole",
       .help = "rows depend on each other: blocks are reused whole",
       .groups = {Whole(4, 64)},
       .budget_bytes = 24 * 64},
      {.name = "spans",
       .help = "spans, times to live, retention",
       .groups = {Full(4, 64)},
       .budget_bytes = 24 * 64,
       .span_bytes = 6 * 64},
      {.name = "quotas",
       .help = "accounts with shares and floors that change",
       .groups = {Full(4, 64)},
       .budget_bytes = 24 * 64,
       .num_namespaces = 4,
       .num_words = 2,
       .has_quotas = true},
  };
}

// One group, and something that goes wrong, or a tier.
std::vector<CacheSetup> FaultySetups() {
  return {
      {.name = "refusals",
       .help = "the store refuses memory",
       .groups = {Full(4, 64)},
       .budget_bytes = 24 * 64,
       .has_refusals = true},
      {.name = "tier",
       .help = "a tier below RAM that is slow, reorders, loses and damages",
       .groups = {Full(4, 64)},
       .budget_bytes = 24 * 64,
       .has_tier = true},
      {.name = "faults",
       .help = "sequences that write other bytes for the same text",
       .groups = {Full(4, 64)},
       .budget_bytes = 40 * 64,
       .num_words = 2,
       .has_faults = true},
  };
}

// Several groups.
std::vector<CacheSetup> HybridSetups() {
  return {
      {.name = "narrow",
       .help = "a window shorter than a block",
       .groups = {Full(4, 64), Window(3, 64, 0)},
       .budget_bytes = 8 * 512,
       .min_slab_bytes = 512},
      {.name = "wide",
       .help = "a window of some blocks, rollback of 3 tokens",
       .groups = {Full(4, 64), Window(10, 128, 3)},
       .budget_bytes = 6 * 1024,
       .min_slab_bytes = 1024,
       .eviction = "s3fifo"},
      {.name = "slides",
       .help = "a window, and nobody waits: it slides exactly",
       .groups = {Full(4, 64), Window(6, 64, 1)},
       .budget_bytes = 8 * 512,
       .min_slab_bytes = 512,
       .has_waits = false},
      {.name = "state",
       .help = "a recurrent state, rollback of 2 tokens",
       .groups = {Full(4, 64), State(192, 2)},
       .budget_bytes = 6 * 1536,
       .min_slab_bytes = 1536},
      {.name = "hybrid",
       .help = "three groups of different block sizes share slabs of a few blocks",
       .groups = {Full(4, 64), Window(6, 128, 1), State(192, 1)},
       .budget_bytes = 10 * 1536,
       .min_slab_bytes = 1536,
       .eviction = "lfu",
       .has_refusals = true},
      {.name = "roomy-hybrid",
       .help = "three groups, and nothing is ever evicted",
       .groups = {Full(4, 64), Window(6, 128, 1), State(192, 1)},
       .budget_bytes = 1024 * 1536,
       .min_slab_bytes = 1536,
       .num_words = 2},
      {.name = "tier-hybrid",
       .help = "three groups above such a tier",
       .groups = {Full(4, 64), Window(6, 128, 1), State(192, 1)},
       .budget_bytes = 10 * 1536,
       .min_slab_bytes = 1536,
       .has_tier = true},
      {.name = "quotas-hybrid",
       .help = "three groups, accounts with shares and floors that change",
       .groups = {Full(4, 64), Window(6, 128, 1), State(192, 1)},
       .budget_bytes = 10 * 1536,
       .min_slab_bytes = 1536,
       .num_namespaces = 4,
       .has_quotas = true},
  };
}

std::vector<CacheSetup> MakeSetups() {
  std::vector<CacheSetup> all = SingleSetups();
  for (const auto& more : {FaultySetups(), HybridSetups()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

std::span<const CacheSetup> Setups() {
  static const std::vector<CacheSetup> setups = MakeSetups();
  return setups;
}

const CacheSetup* FindSetup(std::string_view name) {
  for (const CacheSetup& setup : Setups()) {
    if (setup.name == name) return &setup;
  }
  return nullptr;
}

}  // namespace kvern::kv::model_check
