// What the attention kernels of every KV dtype share, over the vector of the including file.
#pragma once

#include "compute/attention.h"
#include "kvern/paged_view.h"

namespace {

using kvern::kBlockTokens;
using kvern::kChunkTokens;
using kvern::compute::ChunkTask;
using kvern::compute::PartialFloats;
using kvern::compute::QueryFloats;

template <typename Pass, int kCount, typename... Args>
KVERN_INLINE void InPassesFrom(uint32_t done, const ChunkTask& task, Args... args) {
  for (; task.num_queries - done >= kCount; done += kCount) {
    if (done == 0 && task.ahead != nullptr) {
      Pass::template Run<kCount, true>(done, task, args...);
    } else {
      Pass::template Run<kCount, false>(done, task, args...);
    }
  }
  if constexpr (kCount > 1) {
    constexpr int kNext = kCount > 10  ? 10
                          : kCount > 8 ? 8
                          : kCount > 6 ? 6
                          : kCount > 4 ? 4
                                       : kCount - 1;
    if (done < task.num_queries) InPassesFrom<Pass, kNext>(done, task, args...);
  }
}
// Calls Pass::Run<n, kStream> for the largest n ≤ kCount that fits until all queries are done. The
// first streams: it fetches the planes ahead, if there are any.
template <typename Pass, int kCount, typename... Args>
KVERN_INLINE void InPasses(const ChunkTask& task, Args... args) {
  InPassesFrom<Pass, kCount>(0, task, args...);
}

// The first `n` lanes at most, as LoadFirst and StoreFirst take them.
KVERN_INLINE int LanesOf(uint32_t n) { return n < kLanes ? static_cast<int>(n) : kLanes; }

constexpr float kSmallestStored = 0x1p-30f;
constexpr float kLargestStored = 65504.0f;

// Rule N6, for finite x. Tiny values of either sign become +0.
KVERN_INLINE F32x16 Canonical(F32x16 x) {
  const F32x16 magnitude = FromBits(AndInt(Bits(x), Set1Int(0x7FFFFFFF)));
  const F32x16 limit = Set1(kLargestStored);
  x = SelectGreaterEqual(limit, x, x, limit);
  x = SelectGreaterEqual(x, Set1(-kLargestStored), x, Set1(-kLargestStored));
  return SelectGreaterEqual(magnitude, Set1(kSmallestStored), x, Set1(0.0f));
}

KVERN_INLINE bool AllFinite(const float* row, uint32_t n) {
  for (uint32_t d = 0; d < n; d += kLanes) {
    const int count = LanesOf(n - d);
    const I32x16 bits = AndInt(Bits(LoadFirst(row + d, count)), Set1Int(0x7FFFFFFF));
    if (FoldMaxInt(bits) >= 0x7F800000) return false;
  }
  return true;
}

}  // namespace
