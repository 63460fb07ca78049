// Comparing runs of tokens. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "kvern/ids.h"

namespace kvern::kv {

// How many tokens at the start are the same. In pieces, as memcmp is much faster than a loop.
inline size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  constexpr size_t kPiece = 1024;
  const size_t size = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < size) {
    const size_t piece = std::min(kPiece, size - same);
    if (std::memcmp(&a[same], &b[same], piece * sizeof(TokenId)) != 0) break;
    same += piece;
  }
  while (same < size && a[same] == b[same]) ++same;
  return same;
}

}  // namespace kvern::kv
