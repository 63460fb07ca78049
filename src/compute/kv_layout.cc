#include "compute/kv_layout.h"

#include <cstring>

namespace kvern::compute {
namespace {

// Rows lie in columns of the K plane and in rows of the V plane; `elements` is the width of a row.
void CopyColumns(std::byte* to, const std::byte* from, uint32_t elements, size_t element_bytes,
                 uint32_t num_tokens) {
  const size_t stride = kBlockTokens * element_bytes;
  for (uint32_t d = 0; d < elements; ++d) {
    std::memcpy(to + d * stride, from + d * stride, num_tokens * element_bytes);
  }
}

}  // namespace

bool KvLayout::EqualKeys(const std::byte* a, const std::byte* b, uint32_t slot) const {
  const size_t element = GetKvDtype(k_dtype).element_bytes;
  const size_t end = size_t{head_dim} * kBlockTokens * element;
  for (size_t at = slot * element; at < end; at += kBlockTokens * element) {
    if (std::memcmp(a + at, b + at, element) != 0) return false;
  }
  return true;
}

bool KvLayout::EqualValues(const std::byte* a, const std::byte* b, uint32_t slot) const {
  const size_t row = GetKvDtype(v_dtype).element_bytes * v_dim();
  return std::memcmp(a + slot * row, b + slot * row, row) == 0;
}

void KvLayout::CopyRows(std::byte* to, const std::byte* from, uint32_t num_tokens) const {
  const size_t k_element = GetKvDtype(k_dtype).element_bytes;
  const size_t v_row = GetKvDtype(v_dtype).element_bytes * v_dim();
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    for (uint32_t head = 0; head < num_kv_heads; ++head) {
      CopyColumns(to + k_offset(layer, head), from + k_offset(layer, head), head_dim, k_element,
                  num_tokens);
      std::memcpy(to + v_offset(layer, head), from + v_offset(layer, head), num_tokens * v_row);
    }
  }
}

}  // namespace kvern::compute
