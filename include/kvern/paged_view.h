// PagedView: how kernels see one sequence's K/V: block pointers in position order.
//
// Plain data. Block i holds positions [16·i, 16·i + 16) of all layers of one layer group; its bytes
// are laid out by compute/kv_layout.h. The view owns nothing: the pointers are valid while the
// sequence that made it neither grows, shrinks nor is released. Blocks that other sequences share
// are read-only; the executor writes only rows of the positions that it was asked to compute.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvern {

inline constexpr uint32_t kBlockTokens = 16;  // tokens in a block: one lane each
inline constexpr uint32_t kChunkBlocks = 8;   // blocks in a KV chunk (rule N3)
inline constexpr uint32_t kChunkTokens = kBlockTokens * kChunkBlocks;

struct PagedView {
  std::byte* const* blocks = nullptr;  // [num_blocks], in position order
  uint32_t num_blocks = 0;
};

}  // namespace kvern
