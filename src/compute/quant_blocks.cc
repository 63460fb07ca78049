#include "compute/quant_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace kvern::compute {
namespace {

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

void DequantizeF32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof(float)); }

void DequantizeF16(const std::byte* block, float* out) {
  *out = HalfToFloat(Load<uint16_t>(block));
}

void DequantizeBf16(const std::byte* block, float* out) {
  *out = Bfloat16ToFloat(Load<uint16_t>(block));
}

// Element `i` of 32 whose low four bits are pair-packed.
int PairPacked(const uint8_t (&qs)[16], uint32_t i) {
  return i < 16 ? qs[i] & 0x0F : qs[i - 16] >> 4;
}

int FifthBit(const uint8_t (&qh)[4], uint32_t i) { return (qh[i / 8] >> (i % 8) & 1) << 4; }

void DequantizeQ4_0(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ4_0>(bytes);
  const float d = HalfToFloat(block.d);
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(PairPacked(block.qs, i) - 8);
  }
}

void DequantizeQ4_1(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ4_1>(bytes);
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(PairPacked(block.qs, i)) + m;
  }
}

void DequantizeQ5_0(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ5_0>(bytes);
  const float d = HalfToFloat(block.d);
  for (uint32_t i = 0; i < 32; ++i) {
    const int q = PairPacked(block.qs, i) | FifthBit(block.qh, i);
    out[i] = d * static_cast<float>(q - 16);
  }
}

void DequantizeQ5_1(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ5_1>(bytes);
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (uint32_t i = 0; i < 32; ++i) {
    const int q = PairPacked(block.qs, i) | FifthBit(block.qh, i);
    out[i] = d * static_cast<float>(q) + m;
  }
}

void DequantizeQ8_0(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ8_0>(bytes);
  const float d = HalfToFloat(block.d);
  for (uint32_t i = 0; i < 32; ++i) out[i] = static_cast<float>(block.qs[i]) * d;
}

void DequantizeQ4_K(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ4_K>(bytes);
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(block.scales, s);
    const float scale = HalfToFloat(block.d) * static_cast<float>(packed.scale);
    const float min = HalfToFloat(block.dmin) * static_cast<float>(packed.min);
    for (uint32_t j = 0; j < 32; ++j) {
      const int q = block.qs[s / 2 * 32 + j] >> (s % 2 * 4) & 0x0F;
      out[s * 32 + j] = scale * static_cast<float>(q) - min;
    }
  }
}

void DequantizeQ5_K(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ5_K>(bytes);
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(block.scales, s);
    const float scale = HalfToFloat(block.d) * static_cast<float>(packed.scale);
    const float min = HalfToFloat(block.dmin) * static_cast<float>(packed.min);
    for (uint32_t j = 0; j < 32; ++j) {
      const int low = block.qs[s / 2 * 32 + j] >> (s % 2 * 4) & 0x0F;
      const int q = low | (block.qh[j] >> s & 1) << 4;
      out[s * 32 + j] = scale * static_cast<float>(q) - min;
    }
  }
}

void DequantizeQ6_K(const std::byte* bytes, float* out) {
  const auto block = Load<BlockQ6_K>(bytes);
  const float d = HalfToFloat(block.d);
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t half = i / 128;
    const uint32_t s = i / 32 % 4;
    const uint32_t j = i % 32;
    const int low = block.ql[half * 64 + s % 2 * 32 + j] >> (s / 2 * 4) & 0x0F;
    const int high = block.qh[half * 32 + j] >> (s * 2) & 3;
    const float scale = d * static_cast<float>(block.scales[i / 16]);
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <typename Block>
constexpr QuantTraits BlockRow(QuantType type, std::string_view name,
                               void (*dequantize_block)(const std::byte*, float*)) {
  return {.type = type,
          .name = name,
          .block_elements = Block::kElements,
          .block_bytes = sizeof(Block),
          .dequantize_block = dequantize_block};
}

constexpr std::array<QuantTraits, 11> kQuantTypes = {{
    {QuantType::kF32, "F32", 1, 4, DequantizeF32},
    {QuantType::kF16, "F16", 1, 2, DequantizeF16},
    BlockRow<BlockQ4_0>(QuantType::kQ4_0, "Q4_0", DequantizeQ4_0),
    BlockRow<BlockQ4_1>(QuantType::kQ4_1, "Q4_1", DequantizeQ4_1),
    BlockRow<BlockQ5_0>(QuantType::kQ5_0, "Q5_0", DequantizeQ5_0),
    BlockRow<BlockQ5_1>(QuantType::kQ5_1, "Q5_1", DequantizeQ5_1),
    BlockRow<BlockQ8_0>(QuantType::kQ8_0, "Q8_0", DequantizeQ8_0),
    BlockRow<BlockQ4_K>(QuantType::kQ4_K, "Q4_K", DequantizeQ4_K),
    BlockRow<BlockQ5_K>(QuantType::kQ5_K, "Q5_K", DequantizeQ5_K),
    BlockRow<BlockQ6_K>(QuantType::kQ6_K, "Q6_K", DequantizeQ6_K),
    {QuantType::kBf16, "BF16", 1, 2, DequantizeBf16},
}};

}  // namespace

std::span<const QuantTraits> QuantTypes() { return kQuantTypes; }

const QuantTraits* FindQuantTraits(QuantType type) {
  const auto* row = std::ranges::find(kQuantTypes, type, &QuantTraits::type);
  return row == kQuantTypes.end() ? nullptr : row;
}

const QuantTraits& GetQuantTraits(QuantType type) {
  const QuantTraits* traits = FindQuantTraits(type);
  CHECK(traits != nullptr);
  return *traits;
}

void Dequantize(QuantType type, std::span<const std::byte> bytes, std::span<float> out) {
  const QuantTraits& traits = GetQuantTraits(type);
  const size_t num_blocks = bytes.size() / traits.block_bytes;
  CHECK(bytes.size() == num_blocks * traits.block_bytes);
  CHECK(out.size() == num_blocks * traits.block_elements);
  for (size_t i = 0; i < num_blocks; ++i) {
    traits.dequantize_block(bytes.data() + i * traits.block_bytes,
                            out.data() + i * traits.block_elements);
  }
}

ScaleMin UnpackScaleMin(const uint8_t (&scales)[12], uint32_t index) {
  if (index < 4) {
    return {static_cast<uint8_t>(scales[index] & 0x3F),
            static_cast<uint8_t>(scales[index + 4] & 0x3F)};
  }
  const uint8_t low = scales[index + 4];
  return {static_cast<uint8_t>((low & 0x0F) | (scales[index - 4] >> 2 & 0x30)),
          static_cast<uint8_t>(low >> 4 | (scales[index] >> 2 & 0x30))};
}

}  // namespace kvern::compute
