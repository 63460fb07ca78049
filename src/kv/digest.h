// Digest and Blake2b256: BLAKE2b with 32 bytes of output, plain or keyed (RFC 7693).
//
// Two texts with one plain digest cannot be found, so a digest stands for its text. A keyed one (a
// MAC) also proves that its maker knew the key. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

namespace kvern::kv {

using Digest = std::array<std::byte, 32>;

std::string ToHex(std::span<const std::byte> bytes);  // two digits a byte, in their order

// A secret that writers and readers of a shared tier have in common.
struct MacKey {
  std::array<std::byte, 32> bytes{};
};

// Of the parts one after the other. Keyed if `key` is not null.
Digest Blake2b256(std::initializer_list<std::span<const std::byte>> parts,
                  const MacKey* key = nullptr);

// In a time that does not depend on where they differ, so that nobody can guess a MAC bytewise.
bool EqualInConstantTime(const Digest& a, const Digest& b);

}  // namespace kvern::kv
