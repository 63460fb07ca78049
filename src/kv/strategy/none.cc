// none: no cache. A scratch region of the same layout, just large enough, freed before each step.
#include "kv/strategy/contiguous.h"

namespace kvern::kv {
namespace {

size_t JustEnough(size_t, size_t needed, size_t) { return needed; }

}  // namespace

std::unique_ptr<SequenceCache> MakeNoCache(CacheOptions options) {
  return std::make_unique<ContiguousCache>(
      std::move(options), ContiguousPolicy{.grow = JustEnough, .frees_when_empty = true});
}

}  // namespace kvern::kv
