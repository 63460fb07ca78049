// KvLayout: where K and V of one layer and head lie in a block, and how many bytes a block has.
//
// A block holds kBlockTokens tokens: for each layer, for each KV head, the K plane and then the V
// plane (kv_dtype.h). One page (layer, head) is contiguous, so a kernel streams it. This is the
// only place that turns a model's shape into KV bytes. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kv_dtype.h"
#include "kvern/paged_view.h"

namespace kvern::compute {

struct KvLayout {
  uint32_t num_layers;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  KvDtype k_dtype;
  KvDtype v_dtype;

  // V rows pad to whole vectors; the padding is stored as zeros and never read back.
  uint32_t v_dim() const { return (head_dim + 15) / 16 * 16; }
  size_t k_plane_bytes() const { return GetKvDtype(k_dtype).k_plane_bytes(head_dim); }
  size_t v_plane_bytes() const { return GetKvDtype(v_dtype).v_plane_bytes(v_dim()); }
  // Pages begin at cache lines.
  size_t page_bytes() const { return (k_plane_bytes() + v_plane_bytes() + 63) / 64 * 64; }
  size_t block_bytes() const { return page_bytes() * num_layers * num_kv_heads; }
  // Exact: planes of 16 tokens divide evenly.
  size_t token_bytes() const { return block_bytes() / kBlockTokens; }

  // Offsets in a block.
  size_t k_offset(uint32_t layer, uint32_t head) const {
    return (size_t{layer} * num_kv_heads + head) * page_bytes();
  }
  size_t v_offset(uint32_t layer, uint32_t head) const {
    return k_offset(layer, head) + k_plane_bytes();
  }

  // Whether the rows in `slot` of two planes have the same bytes.
  bool EqualKeys(const std::byte* a, const std::byte* b, uint32_t slot) const;
  bool EqualValues(const std::byte* a, const std::byte* b, uint32_t slot) const;

  // Copies the rows of the first `num_tokens` (≤ 16) of one block into another.
  void CopyRows(std::byte* to, const std::byte* from, uint32_t num_tokens) const;
};

}  // namespace kvern::compute
