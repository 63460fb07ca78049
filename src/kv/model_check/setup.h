// The caches that the model checker tries: small pools, so that exhaustion, eviction and sharing
// happen all the time. One row of a table for each. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvern/kv_store.h"

namespace kvern::kv::model_check {

struct CacheSetup {
  std::string_view name;
  std::string_view help;
  std::vector<GroupSpec> groups;
  size_t budget_bytes = 0;
  size_t min_slab_bytes = 64;
  std::string_view eviction = "lru";
  size_t history_blocks = 1 << 20;
  size_t span_bytes = 0;
  size_t num_namespaces = 2;
  uint32_t num_words = 3;     // different tokens in texts
  bool has_quotas = false;    // of two accounts, which change
  bool has_tier = false;      // slow, reordering, failing and damaging
  bool has_waits = true;      // else nobody waits for anybody, and windows slide exactly
  bool has_refusals = false;  // the store refuses memory now and then
  bool has_faults = false;    // some sequences write other bytes for the same text

  size_t block_tokens() const { return groups[0].block_tokens; }
  size_t max_tokens() const { return 8 * block_tokens(); }  // of a text
};

std::span<const CacheSetup> Setups();

// None of that name: null.
const CacheSetup* FindSetup(std::string_view name);

}  // namespace kvern::kv::model_check
