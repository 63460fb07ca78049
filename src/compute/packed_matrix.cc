#include "compute/packed_matrix.h"

#include <cstring>
#include <utility>

#include "base/float16.h"

namespace kvern::compute {
namespace {

using layout::kBlock;
using layout::kNibbleBytes;
using layout::kSuperBlock;
using layout::RoundUp64;

// Writes and reads the integers of one block (32 inputs of one row) in the quant plane.
void PutNibbles(std::byte* block, uint32_t lane, const uint8_t* q) {
  auto* bytes = reinterpret_cast<uint8_t*>(block);
  for (uint32_t k = 0; k < kBlock; ++k) {
    const uint32_t group = k / 4;
    bytes[(group % 4 * kRowTile + lane) * 4 + k % 4] |= (q[k] & 15) << (group / 4 * 4);
  }
}
uint8_t GetNibble(const std::byte* block, uint32_t lane, uint32_t k) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(block);
  const uint32_t group = k / 4;
  return bytes[(group % 4 * kRowTile + lane) * 4 + k % 4] >> (group / 4 * 4) & 15;
}
void PutFifthBits(std::byte* block, uint32_t lane, const uint8_t* q) {
  auto* bytes = reinterpret_cast<uint8_t*>(block + kNibbleBytes);
  for (uint32_t k = 0; k < kBlock; ++k) bytes[lane * 4 + k % 4] |= (q[k] >> 4 & 1) << (k / 4);
}
uint8_t GetFifthBit(const std::byte* block, uint32_t lane, uint32_t k) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(block + kNibbleBytes);
  return bytes[lane * 4 + k % 4] >> (k / 4) & 1;
}
void PutBitPairs(std::byte* block, uint32_t lane, const uint8_t* q) {
  auto* bytes = reinterpret_cast<uint8_t*>(block + kNibbleBytes);
  for (uint32_t k = 0; k < kBlock; ++k) {
    const uint32_t group = k / 4;
    bytes[(group / 4 * kRowTile + lane) * 4 + k % 4] |= (q[k] >> 4 & 3) << (group % 4 * 2);
  }
}
uint8_t GetBitPair(const std::byte* block, uint32_t lane, uint32_t k) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(block + kNibbleBytes);
  const uint32_t group = k / 4;
  return bytes[(group / 4 * kRowTile + lane) * 4 + k % 4] >> (group % 4 * 2) & 3;
}

void PutU16(std::byte* plane, uint32_t index, uint16_t value) {
  std::memcpy(plane + 2 * index, &value, 2);
}
float GetHalf(const std::byte* plane, uint32_t index) {
  uint16_t value;
  std::memcpy(&value, plane + 2 * index, 2);
  return HalfToFloat(value);
}

// Bytes of the scale plane of layout L, padded.
template <typename L>
size_t ScalePlane(uint32_t cols) {
  const size_t super_blocks = L::kSuperScale == 0 ? 0 : cols / kSuperBlock;
  return RoundUp64(size_t{cols / kBlock} * L::kScale + super_blocks * L::kSuperScale);
}

// Where block `b` of a tile has its quants, its scales, and the super-scales before them.
template <typename L, typename Byte>
Byte* Quants(Byte* tile, uint32_t cols, uint32_t b) {
  return tile + ScalePlane<L>(cols) + size_t{b} * L::kQuant;
}
template <typename L, typename Byte>
Byte* Scales(Byte* tile, uint32_t b) {
  return tile + size_t{b} * L::kScale + size_t{b / 8 + 1} * L::kSuperScale;
}
template <typename L, typename Byte>
Byte* SuperScales(Byte* tile, uint32_t b) {
  return Scales<L>(tile, b / 8 * 8) - L::kSuperScale;
}

template <typename Block>
Block ReadBlock(const std::byte* source, uint32_t index) {
  Block block;
  std::memcpy(&block, source + size_t{index} * sizeof(Block), sizeof(Block));
  return block;
}

// --- Types of 32-wide blocks ---

void PackQ8_0(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile) {
  for (uint32_t b = 0; b < cols / kBlock; ++b) {
    const auto block = ReadBlock<BlockQ8_0>(source, b);
    PutU16(Scales<layout::Q8_0>(tile, b), lane, block.d);
    auto* q = reinterpret_cast<uint8_t*>(Quants<layout::Q8_0>(tile, cols, b));
    for (uint32_t k = 0; k < kBlock; ++k) {
      q[(k / 4 * kRowTile + lane) * 4 + k % 4] = static_cast<uint8_t>(block.qs[k]) ^ 0x80;
    }
  }
}
void UnpackQ8_0(const std::byte* tile, uint32_t cols, uint32_t lane, float* out) {
  for (uint32_t k = 0; k < cols; ++k) {
    const uint32_t b = k / kBlock, i = k % kBlock;
    const std::byte* q = Quants<layout::Q8_0>(tile, cols, b);
    const auto stored = static_cast<uint8_t>(q[(i / 4 * kRowTile + lane) * 4 + i % 4]);
    const float d = GetHalf(Scales<layout::Q8_0>(tile, b), lane);
    out[k] = static_cast<float>(static_cast<int>(stored) - 128) * d;
  }
}

// Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, nibbles, perhaps fifth bits.
template <typename L, typename Block, bool kMin, bool kFive>
void PackSimple(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile) {
  for (uint32_t b = 0; b < cols / kBlock; ++b) {
    const auto block = ReadBlock<Block>(source, b);
    PutU16(Scales<L>(tile, b), lane, block.d);
    if constexpr (kMin) PutU16(Scales<L>(tile, b), kRowTile + lane, block.m);
    uint8_t q[kBlock];
    for (uint32_t k = 0; k < kBlock; ++k) q[k] = block.qs[k % 16] >> (k / 16 * 4) & 15;
    if constexpr (kFive) {
      for (uint32_t k = 0; k < kBlock; ++k) q[k] |= (block.qh[k / 8] >> (k % 8) & 1) << 4;
      PutFifthBits(Quants<L>(tile, cols, b), lane, q);
    }
    PutNibbles(Quants<L>(tile, cols, b), lane, q);
  }
}
template <typename L, bool kMin, bool kFive, int kOffset>
void UnpackSimple(const std::byte* tile, uint32_t cols, uint32_t lane, float* out) {
  for (uint32_t k = 0; k < cols; ++k) {
    const uint32_t b = k / kBlock;
    const std::byte* quants = Quants<L>(tile, cols, b);
    int q = GetNibble(quants, lane, k % kBlock);
    if constexpr (kFive) q |= GetFifthBit(quants, lane, k % kBlock) << 4;
    const float scaled = GetHalf(Scales<L>(tile, b), lane) * static_cast<float>(q - kOffset);
    out[k] = kMin ? scaled + GetHalf(Scales<L>(tile, b), kRowTile + lane) : scaled;
  }
}

// --- Types of 256-wide super-blocks ---

template <typename L, typename Block, bool kFive>
void PackScaleMin(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile) {
  for (uint32_t b = 0; b < cols / kBlock; ++b) {
    const auto super = ReadBlock<Block>(source, b / 8);
    const uint32_t sub = b % 8;
    PutU16(SuperScales<L>(tile, b), lane, super.d);
    PutU16(SuperScales<L>(tile, b), kRowTile + lane, super.dmin);
    const ScaleMin scale_min = UnpackScaleMin(super.scales, sub);
    Scales<L>(tile, b)[lane] = std::byte{scale_min.scale};
    Scales<L>(tile, b)[kRowTile + lane] = std::byte{scale_min.min};
    uint8_t q[kBlock];
    for (uint32_t k = 0; k < kBlock; ++k) q[k] = super.qs[sub / 2 * 32 + k] >> (sub % 2 * 4) & 15;
    if constexpr (kFive) {
      for (uint32_t k = 0; k < kBlock; ++k) q[k] |= (super.qh[k] >> sub & 1) << 4;
      PutFifthBits(Quants<L>(tile, cols, b), lane, q);
    }
    PutNibbles(Quants<L>(tile, cols, b), lane, q);
  }
}
template <typename L, bool kFive>
void UnpackScaleMinRow(const std::byte* tile, uint32_t cols, uint32_t lane, float* out) {
  for (uint32_t k = 0; k < cols; ++k) {
    const uint32_t b = k / kBlock;
    const std::byte* quants = Quants<L>(tile, cols, b);
    int q = GetNibble(quants, lane, k % kBlock);
    if constexpr (kFive) q |= GetFifthBit(quants, lane, k % kBlock) << 4;
    const std::byte* scales = Scales<L>(tile, b);
    const std::byte* super = SuperScales<L>(tile, b);
    const float d = GetHalf(super, lane) * static_cast<float>(scales[lane]);
    const float m = GetHalf(super, kRowTile + lane) * static_cast<float>(scales[kRowTile + lane]);
    out[k] = d * static_cast<float>(q) - m;
  }
}

void PackQ6_K(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile) {
  using L = layout::Q6_K;
  for (uint32_t b = 0; b < cols / kBlock; ++b) {
    const auto super = ReadBlock<BlockQ6_K>(source, b / 8);
    const uint32_t half = b % 8 / 4, sub = b % 4;
    PutU16(SuperScales<L>(tile, b), lane, super.d);
    for (uint32_t i = 0; i < 2; ++i) {
      Scales<L>(tile, b)[i * kRowTile + lane] = std::byte(super.scales[b % 8 * 2 + i]);
    }
    uint8_t q[kBlock];
    for (uint32_t k = 0; k < kBlock; ++k) {
      const uint32_t low = super.ql[64 * half + 32 * (sub % 2) + k] >> (sub / 2 * 4) & 15;
      const uint32_t high = super.qh[32 * half + k] >> (2 * sub) & 3;
      q[k] = static_cast<uint8_t>(low | high << 4);
    }
    PutNibbles(Quants<L>(tile, cols, b), lane, q);
    PutBitPairs(Quants<L>(tile, cols, b), lane, q);
  }
}
void UnpackQ6_K(const std::byte* tile, uint32_t cols, uint32_t lane, float* out) {
  using L = layout::Q6_K;
  for (uint32_t k = 0; k < cols; ++k) {
    const uint32_t b = k / kBlock, i = k % kBlock;
    const std::byte* quants = Quants<L>(tile, cols, b);
    const int q = GetNibble(quants, lane, i) | GetBitPair(quants, lane, i) << 4;
    const auto scale = static_cast<int8_t>(Scales<L>(tile, b)[i / 16 * kRowTile + lane]);
    const float d = GetHalf(SuperScales<L>(tile, b), lane) * static_cast<float>(scale);
    out[k] = d * static_cast<float>(q - 32);
  }
}

// --- Float types: element k of row `lane` at [k][lane] ---

template <typename Element>
void PackFloats(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile) {
  for (uint32_t k = 0; k < cols; ++k) {
    std::memcpy(tile + (size_t{k} * kRowTile + lane) * sizeof(Element),
                source + size_t{k} * sizeof(Element), sizeof(Element));
  }
}
template <typename Element, float (*kDecode)(Element)>
void UnpackFloats(const std::byte* tile, uint32_t cols, uint32_t lane, float* out) {
  for (uint32_t k = 0; k < cols; ++k) {
    Element element;
    std::memcpy(&element, tile + (size_t{k} * kRowTile + lane) * sizeof(Element), sizeof element);
    out[k] = kDecode(element);
  }
}
float Identity(float x) { return x; }

template <typename L>
constexpr WeightFormat Row(bool quantized_input, decltype(WeightFormat::pack_row) pack_row,
                           decltype(WeightFormat::unpack_row) unpack_row) {
  return {.type = L::kType,
          .quantized_input = quantized_input,
          .scale_plane_bytes = ScalePlane<L>,
          .block_quant_bytes = L::kQuant,
          .pack_row = pack_row,
          .unpack_row = unpack_row};
}

using layout::Q4_0, layout::Q4_1, layout::Q5_0, layout::Q5_1, layout::Q4_K, layout::Q5_K;
constexpr WeightFormat kFormats[] = {
    Row<layout::F32>(false, PackFloats<float>, UnpackFloats<float, Identity>),
    Row<layout::F16>(false, PackFloats<uint16_t>, UnpackFloats<uint16_t, HalfToFloat>),
    Row<layout::Bf16>(false, PackFloats<uint16_t>, UnpackFloats<uint16_t, Bfloat16ToFloat>),
    Row<layout::Q8_0>(true, PackQ8_0, UnpackQ8_0),
    Row<Q4_0>(true, PackSimple<Q4_0, BlockQ4_0, false, false>, UnpackSimple<Q4_0, false, false, 8>),
    Row<Q4_1>(true, PackSimple<Q4_1, BlockQ4_1, true, false>, UnpackSimple<Q4_1, true, false, 0>),
    Row<Q5_0>(true, PackSimple<Q5_0, BlockQ5_0, false, true>, UnpackSimple<Q5_0, false, true, 16>),
    Row<Q5_1>(true, PackSimple<Q5_1, BlockQ5_1, true, true>, UnpackSimple<Q5_1, true, true, 0>),
    Row<Q4_K>(true, PackScaleMin<Q4_K, BlockQ4_K, false>, UnpackScaleMinRow<Q4_K, false>),
    Row<Q5_K>(true, PackScaleMin<Q5_K, BlockQ5_K, true>, UnpackScaleMinRow<Q5_K, true>),
    Row<layout::Q6_K>(true, PackQ6_K, UnpackQ6_K),
};

}  // namespace

std::span<const WeightFormat> WeightFormats() { return kFormats; }

const WeightFormat* FindWeightFormat(QuantType type) {
  for (const WeightFormat& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

size_t FormatIndex(const WeightFormat& format) { return static_cast<size_t>(&format - kFormats); }

size_t TileBytes(const WeightFormat& format, uint32_t cols) {
  return format.scale_plane_bytes(cols) +
         RoundUp64(size_t{cols} * format.block_quant_bytes / kBlock);
}

Result<size_t> PackedMatrix::PlanBytes(QuantType type, uint32_t rows, uint32_t cols) {
  const WeightFormat* format = FindWeightFormat(type);
  if (format == nullptr) {
    return Errorf(ErrorCode::kUnsupported, "weights of type {} are not supported",
                  static_cast<uint32_t>(type));
  }
  const QuantTraits& traits = GetQuantTraits(type);
  if (cols % traits.block_elements != 0) {
    return Errorf(ErrorCode::kInvalidArgument, "{} weights need rows of a multiple of {}, not {}",
                  traits.name, traits.block_elements, cols);
  }
  return (size_t{rows} + kRowTile - 1) / kRowTile * TileBytes(*format, cols);
}

Result<PackedMatrix> PackedMatrix::Create(QuantType type, uint32_t rows, uint32_t cols) {
  KVERN_ASSIGN_OR_RETURN(const size_t bytes, PlanBytes(type, rows, cols));
  KVERN_ASSIGN_OR_RETURN(AlignedBuffer own, AlignedBuffer::Create(bytes));
  KVERN_ASSIGN_OR_RETURN(PackedMatrix matrix, Place(type, rows, cols, own.data()));
  matrix.own_ = std::move(own);
  return matrix;
}

Result<PackedMatrix> PackedMatrix::Place(QuantType type, uint32_t rows, uint32_t cols,
                                         std::byte* memory) {
  KVERN_RETURN_IF_ERROR(PlanBytes(type, rows, cols));
  PackedMatrix matrix;
  matrix.format_ = FindWeightFormat(type);
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.tile_bytes_ = TileBytes(*matrix.format_, cols);
  matrix.data_ = memory;
  return matrix;
}

void PackedMatrix::PackTiles(const std::byte* source, uint32_t begin, uint32_t end) {
  const QuantTraits& traits = GetQuantTraits(format_->type);
  const size_t row_bytes = size_t{cols_} / traits.block_elements * traits.block_bytes;
  for (uint32_t index = begin; index < end; ++index) {
    std::byte* tile = data_ + index * tile_bytes_;
    for (uint32_t lane = 0; lane < kRowTile; ++lane) {
      const size_t row = size_t{index} * kRowTile + lane;
      if (row < rows_) format_->pack_row(source + row * row_bytes, cols_, lane, tile);
    }
  }
}

void PackedMatrix::UnpackRow(uint32_t row, float* out) const {
  format_->unpack_row(tile(row / kRowTile), cols_, row % kRowTile, out);
}

}  // namespace kvern::compute
