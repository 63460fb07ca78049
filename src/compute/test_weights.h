// Random weights in every file format, for tests and benchmarks: raw blocks with sane scales and
// any integers.
#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "compute/quant_blocks.h"

namespace kvern::compute {

inline void PutHalf(std::byte* p, float value) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(p, &half, sizeof half);
}

// Offsets of the halves in a block that scale it; everything else may be any byte.
inline std::vector<size_t> HalfOffsets(QuantType type) {
  switch (type) {
    case QuantType::kQ4_1:
    case QuantType::kQ5_1:
    case QuantType::kQ4_K:
    case QuantType::kQ5_K:
      return {0, 2};
    case QuantType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

inline std::vector<std::byte> RandomWeights(QuantType type, uint32_t rows, uint32_t cols,
                                            uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const QuantTraits& traits = GetQuantTraits(type);
  std::vector<std::byte> bytes(size_t{rows} * cols / traits.block_elements * traits.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    if (type == QuantType::kF32) {
      const float value = normal(random);
      std::memcpy(&bytes[at], &value, sizeof value);
    } else if (type == QuantType::kBf16) {
      const uint16_t value = FloatToBfloat16(normal(random));
      std::memcpy(&bytes[at], &value, sizeof value);
    } else {
      for (const size_t offset : HalfOffsets(type)) PutHalf(&bytes[at + offset], normal(random));
    }
  }
  return bytes;
}

}  // namespace kvern::compute
