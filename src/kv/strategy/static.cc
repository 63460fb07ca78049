// static: one region for the whole context, allocated with the first token and never moved.
#include "kv/strategy/contiguous.h"

namespace kvern::kv {
namespace {

size_t WholeContext(size_t, size_t, size_t limit) { return limit; }

}  // namespace

std::unique_ptr<SequenceCache> MakeStaticCache(CacheOptions options) {
  return std::make_unique<ContiguousCache>(
      std::move(options), ContiguousPolicy{.grow = WholeContext, .frees_when_empty = false});
}

}  // namespace kvern::kv
