// GroupSpec: the layers of a model whose K/V live and die by one rule, as the library sees them.
//
// Plain data, told by the engine. The library never learns what a layer is: a group is a block size
// and a lifetime rule. Each sequence has one table (or cache) per group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/paged_view.h"

namespace kvern::kv {

// Index into the list of groups that a pool was made with.
enum class GroupId : uint32_t {};

enum class GroupKind {
  kFull,    // every position stays visible
  kWindow,  // only the last `window` positions are
  kState,   // a recurrent state: a block is valid at exactly one position
};

struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  uint32_t window = 0;     // tokens; kWindow only
  size_t block_bytes = 0;  // a positive multiple of kBlockAlignment
  uint32_t block_tokens = kBlockTokens;
  // Row t depends on tokens ≤ t alone (N5), so the first rows of a block can be kept or copied. If
  // not, blocks are reused whole only.
  bool row_independent = true;
  uint32_t max_rollback = 0;  // tokens that a Truncate() may take back from a window or state
};

inline constexpr size_t kBlockAlignment = 64;  // bytes: one cache line, one widest vector

}  // namespace kvern::kv
