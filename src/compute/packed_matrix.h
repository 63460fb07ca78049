// PackedMatrix: a weight matrix repacked for the kernels, 16 output rows interleaved (rule N2).
//
// A row tile holds 16 output rows. In it, for every 32 inputs (a block), lane r of each vector
// belongs to row r, so a kernel accumulates 16 outputs without ever adding across lanes. One layout
// serves every instruction set.
//
// A tile is two planes, each padded to 64 bytes: first the scales of all blocks, then the quants of
// all blocks.
//
//   type          scales of a block                      quants of a block (bytes)
//   Q8_0          d f16[16]                              512: groups of 4 inputs, u8 = q xor 0x80
//   Q4_0          d f16[16]                              256: nibbles
//   Q4_1          d, m f16[16] each                      256: nibbles
//   Q5_0          d f16[16]                              256 nibbles, 64 fifth bits
//   Q5_1          d, m f16[16] each                      256 nibbles, 64 fifth bits
//   Q4_K, Q5_K    sc, min u8[16] each; per 8 blocks,     as Q4_0, Q5_0
//                 before them: d, dmin f16[16] each
//   Q6_K          sc of each half i8[16]; per 8 blocks,  256 nibbles, 128 upper bit pairs
//                 before them: d f16[16]
//   F16 BF16 F32  none                                   inputs in order, [16] each
//
// Group g (0 … 7) of a block is inputs 4g … 4g + 3. Nibble dword [j][row] (j = 0 … 3) holds group j
// in its low and group j + 4 in its high halves, one input a byte. Fifth-bit dword [row]: bit
// 8·i + g is input 4g + i. Bit-pair dword [h][row]: bits 8·i + 2·(g mod 4) of h = g / 4.
//
// Rows pad to 16 with zero rows. Padding counts in bytes(); it is computed but never read back.
// Immutable after Pack; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "compute/quant_blocks.h"
#include "compute/weight_layout.h"

namespace kvern::compute {

using layout::kRowTile;

// How one tensor type is packed and multiplied: one row of the table in packed_matrix.cc.
struct WeightFormat {
  QuantType type;
  bool quantized_input;  // activations are int8 blocks, else floats
  // Bytes of the scale plane of a tile, padded to 64.
  size_t (*scale_plane_bytes)(uint32_t cols);
  uint32_t block_quant_bytes;  // quants of 16 rows × 32 inputs
  // Packs one source row into lane `lane` of a zeroed tile. `cols` is a multiple of the type's
  // block.
  void (*pack_row)(const std::byte* source, uint32_t cols, uint32_t lane, std::byte* tile);
  // Decodes lane `lane` back to the floats that Dequantize gives for the source row.
  void (*unpack_row)(const std::byte* tile, uint32_t cols, uint32_t lane, float* out);
};

// Null for a type that cannot be packed.
const WeightFormat* FindWeightFormat(QuantType type);

// Index of the format in every kernel table. The order is that of WeightFormats().
std::span<const WeightFormat> WeightFormats();
size_t FormatIndex(const WeightFormat& format);

size_t TileBytes(const WeightFormat& format, uint32_t cols);

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // A zeroed matrix to be filled by PackTiles, in memory of its own. Errors: kUnsupported (type),
  // kInvalidArgument (cols is not a multiple of the type's block), kOutOfMemory.
  static Result<PackedMatrix> Create(QuantType type, uint32_t rows, uint32_t cols);

  // The same in zeroed `memory` of PlanBytes() bytes, aligned to 64, that outlives it. Errors: as
  // PlanBytes.
  static Result<PackedMatrix> Place(QuantType type, uint32_t rows, uint32_t cols,
                                    std::byte* memory);

  // Bytes that such a matrix takes, a multiple of 64. Errors: as Create, but for kOutOfMemory.
  static Result<size_t> PlanBytes(QuantType type, uint32_t rows, uint32_t cols);

  // Packs row tiles [begin, end) from the whole source matrix, row-major. Threads may pack disjoint
  // ranges at once.
  void PackTiles(const std::byte* source, uint32_t begin, uint32_t end);

  // The weights of one row, as floats: how a tied embedding is looked up. `out` has cols() floats.
  void UnpackRow(uint32_t row, float* out) const;

  const WeightFormat& format() const { return *format_; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  uint32_t num_tiles() const { return (rows_ + kRowTile - 1) / kRowTile; }
  size_t tile_bytes() const { return tile_bytes_; }
  const std::byte* tile(uint32_t index) const { return data_ + index * tile_bytes_; }
  size_t bytes() const { return num_tiles() * tile_bytes_; }
  bool empty() const { return rows_ == 0; }

 private:
  const WeightFormat* format_ = nullptr;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  size_t tile_bytes_ = 0;
  AlignedBuffer own_;  // empty where it was placed
  std::byte* data_ = nullptr;
};

}  // namespace kvern::compute
