#include "kv/digest.h"

#include <fmt/core.h>
#include <sodium.h>

#include "base/check.h"

namespace kvern::kv {
namespace {

// Chooses the fastest code for this CPU. libsodium allows it from any thread and more than once.
void InitializeOnce() {
  static const bool is_ready = sodium_init() >= 0;
  CHECK(is_ready);
}

}  // namespace

std::string ToHex(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return hex;
}

Digest Blake2b256(std::initializer_list<std::span<const std::byte>> parts, const MacKey* key) {
  InitializeOnce();
  crypto_generichash_state state;
  Digest digest;
  const auto* key_bytes =
      key == nullptr ? nullptr : reinterpret_cast<const unsigned char*>(key->bytes.data());
  CHECK(crypto_generichash_init(&state, key_bytes, key == nullptr ? 0 : key->bytes.size(),
                                digest.size()) == 0);
  for (const auto& part : parts) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(part.data());
    CHECK(crypto_generichash_update(&state, bytes, part.size()) == 0);
  }
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  CHECK(crypto_generichash_final(&state, out, digest.size()) == 0);
  return digest;
}

bool EqualInConstantTime(const Digest& a, const Digest& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace kvern::kv
