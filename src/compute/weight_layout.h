// Byte counts of the packed weight layout (packed_matrix.h), shared by packing and by kernels.
//
// Constants only: kernels of every instruction set include this file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/quant_blocks.h"

namespace kvern::compute::layout {

inline constexpr uint32_t kRowTile = 16;      // output rows in a tile: one lane each
inline constexpr uint32_t kBlock = 32;        // inputs in a block
inline constexpr uint32_t kSuperBlock = 256;  // inputs that share super-scales
inline constexpr uint32_t kNibbleBytes = 256;

// kScale, kQuant: bytes of 16 rows in a block. kSuperScale: in a super-block, before its scales.
struct F32 {
  static constexpr auto kType = QuantType::kF32;
  static constexpr uint32_t kScale = 0, kSuperScale = 0, kQuant = 2048;
};
struct F16 {
  static constexpr auto kType = QuantType::kF16;
  static constexpr uint32_t kScale = 0, kSuperScale = 0, kQuant = 1024;
};
struct Bf16 {
  static constexpr auto kType = QuantType::kBf16;
  static constexpr uint32_t kScale = 0, kSuperScale = 0, kQuant = 1024;
};
struct Q8_0 {
  static constexpr auto kType = QuantType::kQ8_0;
  static constexpr uint32_t kScale = 32, kSuperScale = 0, kQuant = 512;
};
struct Q4_0 {
  static constexpr auto kType = QuantType::kQ4_0;
  static constexpr uint32_t kScale = 32, kSuperScale = 0, kQuant = kNibbleBytes;
};
struct Q4_1 {
  static constexpr auto kType = QuantType::kQ4_1;
  static constexpr uint32_t kScale = 64, kSuperScale = 0, kQuant = kNibbleBytes;
};
struct Q5_0 {
  static constexpr auto kType = QuantType::kQ5_0;
  static constexpr uint32_t kScale = 32, kSuperScale = 0, kQuant = kNibbleBytes + 64;
};
struct Q5_1 {
  static constexpr auto kType = QuantType::kQ5_1;
  static constexpr uint32_t kScale = 64, kSuperScale = 0, kQuant = kNibbleBytes + 64;
};
struct Q4_K {
  static constexpr auto kType = QuantType::kQ4_K;
  static constexpr uint32_t kScale = 32, kSuperScale = 64, kQuant = kNibbleBytes;
};
struct Q5_K {
  static constexpr auto kType = QuantType::kQ5_K;
  static constexpr uint32_t kScale = 32, kSuperScale = 64, kQuant = kNibbleBytes + 64;
};
struct Q6_K {
  static constexpr auto kType = QuantType::kQ6_K;
  static constexpr uint32_t kScale = 32, kSuperScale = 32, kQuant = kNibbleBytes + 128;
};

constexpr size_t RoundUp64(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace kvern::compute::layout
