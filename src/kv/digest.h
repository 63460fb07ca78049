// Digest and Blake2b256: BLAKE2b with 32 bytes of output, plain or keyed (RFC 7693).
//
// Two texts with one plain digest cannot be found, so a digest stands for its text. A keyed one (a
// MAC) also proves that its maker knew the key. Thread-safe.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "kvern/kv_store.h"

namespace kvern::kv {

std::string ToHex(std::span<const std::byte> bytes);  // two digits a byte, in their order

// Of the parts one after the other. Keyed if `key` is not null.
Digest Blake2b256(std::initializer_list<std::span<const std::byte>> parts,
                  const MacKey* key = nullptr);

// In a time that does not depend on where they differ, so that nobody can guess a MAC bytewise.
bool EqualInConstantTime(const Digest& a, const Digest& b);

}  // namespace kvern::kv
