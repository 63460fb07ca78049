// Random numbers that are pure functions: the same words on every machine, forever.
//
// Philox4x32: a counter-based generator (Philox 4×32 with 10 rounds, Salmon et al. 2011). Output n
// of a stream needs no state, only its counter, so a token's draw depends on nothing but its key
// (rule N10). SplitMix64: a small sequential generator (Steele et al. 2014) for tests and test
// data. Neither is for secrets. Both are safe from any thread; a SplitMix64 object belongs to one.
#pragma once

#include <array>
#include <cstdint>

namespace kvern {

// The block of four random words at `counter` of the stream `key`.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

class SplitMix64 {
 public:
  explicit constexpr SplitMix64(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }

  // In [0, bound), for bound in [1, 2³²]; the bias is below 2⁻³².
  constexpr uint64_t Below(uint64_t bound) { return (Next() >> 32) * bound >> 32; }

  // In [0, 1), a multiple of 2⁻⁵³.
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace kvern
