#include "compute/kv_layout.h"

#include <array>
#include <cstring>

namespace kvern::compute {
namespace {

bool Equal(const std::byte* a, const std::byte* b, const KvRow& row) {
  for (size_t i = 0, at = row.first; i < row.count; ++i, at += row.stride) {
    if (std::memcmp(a + at, b + at, row.bytes) != 0) return false;
  }
  return std::memcmp(a + row.scale, b + row.scale, row.scale_bytes) == 0;
}

void Copy(std::byte* to, const std::byte* from, const KvRow& row) {
  for (size_t i = 0, at = row.first; i < row.count; ++i, at += row.stride) {
    if (row.bytes == 1) {
      to[at] = from[at];
    } else {
      std::memcpy(to + at, from + at, row.bytes);
    }
  }
  std::memcpy(to + row.scale, from + row.scale, row.scale_bytes);
}

}  // namespace

bool KvLayout::EqualKeys(const std::byte* a, const std::byte* b, uint32_t slot) const {
  return Equal(a, b, GetKvDtype(k_dtype).k_row(head_dim, slot));
}

bool KvLayout::EqualValues(const std::byte* a, const std::byte* b, uint32_t slot) const {
  return Equal(a, b, GetKvDtype(v_dtype).v_row(v_dim(), slot));
}

void KvLayout::CopyRows(std::byte* to, const std::byte* from, uint32_t num_tokens) const {
  KvRow keys = GetKvDtype(k_dtype).k_row(head_dim, 0);
  keys.bytes *= num_tokens, keys.scale_bytes *= num_tokens;
  std::array<KvRow, kBlockTokens> values;
  for (uint32_t slot = 0; slot < num_tokens; ++slot) {
    values[slot] = GetKvDtype(v_dtype).v_row(v_dim(), slot);
  }
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    for (uint32_t head = 0; head < num_kv_heads; ++head) {
      Copy(to + k_offset(layer, head), from + k_offset(layer, head), keys);
      for (uint32_t slot = 0; slot < num_tokens; ++slot) {
        Copy(to + v_offset(layer, head), from + v_offset(layer, head), values[slot]);
      }
    }
  }
}

}  // namespace kvern::compute
