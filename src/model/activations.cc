#include "model/activations.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::model {

using compute::kRowTile;
using compute::kTokenTile;

Result<Activations> Activations::Create(uint32_t max_tokens, uint32_t max_cols, bool quantized,
                                        bool floats) {
  Activations result;
  if (quantized) {
    KVERN_ASSIGN_OR_RETURN(result.quantized_, AlignedBuffer::Create(compute::QuantizedTileBytes(
                                                  max_tokens, max_cols)));
  }
  if (floats) {
    KVERN_ASSIGN_OR_RETURN(result.floats_,
                           AlignedBuffer::Create(compute::FloatTileBytes(max_tokens, max_cols)));
  }
  return result;
}

uint32_t Activations::TileTokens(uint32_t tile) const {
  return std::min(kTokenTile, num_tokens_ - tile * kTokenTile);
}

const std::byte* Activations::Tile(uint32_t tile, bool quantized) const {
  const uint32_t first = tile * kTokenTile;
  return quantized ? quantized_.data() + compute::QuantizedTileBytes(first, cols_)
                   : floats_.data() + compute::FloatTileBytes(first, cols_);
}

bool Activations::Pack(const compute::LinearKernels& kernels, const float* x, uint32_t token) {
  const uint32_t tile = token / kTokenTile;
  bool finite = true;
  if (quantized_.bytes() > 0) {
    finite = kernels.quantize(x, cols_,
                              {.tile = const_cast<std::byte*>(Tile(tile, true)),
                               .num_tokens = TileTokens(tile),
                               .token = token % kTokenTile});
  }
  if (floats_.bytes() > 0) {
    kernels.pack_floats(x, cols_,
                        {.tile = const_cast<std::byte*>(Tile(tile, false)),
                         .num_tokens = TileTokens(tile),
                         .token = token % kTokenTile});
  }
  return finite;
}

void Activations::Multiply(const compute::LinearKernels& kernels,
                           const compute::PackedMatrix& weights, uint32_t first_tile,
                           uint32_t end_tile, float* out, size_t out_stride) const {
  CHECK(weights.cols() == cols_);
  const bool quantized = weights.format().quantized_input;
  const auto multiply = kernels.multiply[FormatIndex(weights.format())];
  const uint32_t num_token_tiles = (num_tokens_ + kTokenTile - 1) / kTokenTile;
  // A group of token tiles that stays in the L2 cache meets each row tile in turn.
  const size_t tile_bytes = quantized ? compute::QuantizedTileBytes(kTokenTile, cols_)
                                      : compute::FloatTileBytes(kTokenTile, cols_);
  const uint32_t group =
      static_cast<uint32_t>(std::max<size_t>(1, (size_t{512} << 10) / tile_bytes));
  const bool one_tile = num_token_tiles == 1;
  for (uint32_t begin = 0; begin < num_token_tiles; begin += group) {
    const uint32_t end = std::min(begin + group, num_token_tiles);
    for (uint32_t row_tile = first_tile; row_tile < end_tile;) {
      const uint32_t num_row_tiles = one_tile ? end_tile - first_tile : 1;
      for (uint32_t tile = begin; tile < end; ++tile) {
        multiply({.weights = weights.tile(row_tile),
                  .tile_bytes = weights.tile_bytes(),
                  .num_row_tiles = num_row_tiles,
                  .cols = cols_,
                  .activations = Tile(tile, quantized),
                  .num_tokens = TileTokens(tile),
                  .out = out + size_t{tile} * kTokenTile * out_stride + row_tile * kRowTile,
                  .out_stride = out_stride});
      }
      row_tile += num_row_tiles;
    }
  }
}

}  // namespace kvern::model
