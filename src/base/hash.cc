#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "base/check.h"

namespace kvern {

void Hasher128::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

std::string Hash128::ToHex() const { return fmt::format("{:016x}{:016x}", high, low); }

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hasher128::Hasher128() : state_(XXH3_createState()) {
  CHECK(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK);
}

void Hasher128::Add(std::span<const std::byte> bytes) {
  CHECK(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
}

Hash128 Hasher128::Digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {.high = hash.high64, .low = hash.low64};
}

}  // namespace kvern
