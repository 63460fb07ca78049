// dynamic: one region that grows by half, as a vector does, so copying stays linear in the length.
#include <algorithm>

#include "kv/strategy/contiguous.h"

namespace kvern::kv {
namespace {

size_t GrowByHalf(size_t capacity, size_t needed, size_t limit) {
  return std::min(std::max(needed, capacity + capacity / 2), limit);
}

}  // namespace

std::unique_ptr<SequenceCache> MakeDynamicCache(CacheOptions options) {
  return std::make_unique<ContiguousCache>(
      std::move(options), ContiguousPolicy{.grow = GrowByHalf, .frees_when_empty = false});
}

}  // namespace kvern::kv
