// Hash128, Hash64: XXH3 of a run of bytes, in pieces or at once. Detects change and damage, not
// forgery.
//
// The digest is the same on every machine. A Hasher128 belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace kvern {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;

  std::string ToHex() const;  // 32 digits
};

// XXH3-64 of a run of bytes, chained on what came before by `seed`.
uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed);

class Hasher128 {
 public:
  Hasher128();

  void Add(std::span<const std::byte> bytes);

  // Of all bytes added so far.
  Hash128 Digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace kvern
