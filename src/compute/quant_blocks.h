// Quant blocks: the tensor types that a model file may hold, as they lie in the file.
//
// One row of QuantTypes() per type. A row of weights is a run of blocks; a block holds
// `block_elements` consecutive elements in `block_bytes` bytes, little-endian, without padding. The
// structs are those bytes: copy into them (std::memcpy), since file data may be unaligned.
//
// Dequantize() is the reference decoder: f32, one rounding per written operation, no fused
// multiply-add. Plain functions and constant data: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvern::compute {

// Values are ggml's type ids, as files spell them. A file may name an id that is none of these:
// only FindQuantTraits() tells.
enum class QuantType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
};

struct QuantTraits {
  QuantType type;
  std::string_view name;    // as ggml spells it
  uint32_t block_elements;  // 1 for the float types
  uint32_t block_bytes;
  // Decodes one block of `block_bytes` bytes into `block_elements` floats.
  void (*dequantize_block)(const std::byte* block, float* out);
};

// Every supported type, in ascending id order.
std::span<const QuantTraits> QuantTypes();

// The row of `type`, or null when it is not supported.
const QuantTraits* FindQuantTraits(QuantType type);

// As FindQuantTraits. REQUIRES: `type` is supported.
const QuantTraits& GetQuantTraits(QuantType type);

// Decodes whole blocks. REQUIRES: `type` is supported; `bytes` is n whole blocks and `out` has n ·
// block_elements floats.
void Dequantize(QuantType type, std::span<const std::byte> bytes, std::span<float> out);

// d and m are halves. x[i] is element i of the block, q its stored integer.
// A pair-packed byte qs[j] holds element j in its low and element j + 16 in its high four bits.

struct BlockQ4_0 {  // x = d · (q − 8)
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ4_1 {  // x = d · q + m
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};

struct BlockQ5_0 {  // x = d · (q − 16); bit i of qh is bit 4 of element i
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ5_1 {  // x = d · q + m; qh as in Q5_0
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ8_0 {  // x = q · d
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  int8_t qs[32];
};

// Super-blocks of 256 elements in sub-blocks of 32 (Q4_K, Q5_K) or 16 (Q6_K).

// x = fl(d · scale) · q − fl(dmin · min), with the 6-bit scale and min of the sub-block packed in
// `scales` (UnpackScaleMin). qs[32·g + j] holds element 64·g + j low and 64·g + 32 + j high.
struct BlockQ4_K {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// As Q4_K; bit s of qh[j] is bit 4 of element 32·s + j.
struct BlockQ5_K {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// x = fl(d · scale) · (q − 32). In each half (h = 0, 1) of 128 elements, element 32·s + j has its
// low four bits in ql[64·h + 32·(s mod 2) + j] (low nibble for s < 2, else high) and its high two
// in bits 2·s of qh[32·h + j].
struct BlockQ6_K {
  static constexpr uint32_t kElements = 256;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};

// The 6-bit scale and min of sub-block `index` (0 … 7) of a Q4_K or Q5_K block.
ScaleMin UnpackScaleMin(const uint8_t (&scales)[12], uint32_t index);

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

}  // namespace kvern::compute
