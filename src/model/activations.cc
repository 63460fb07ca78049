#include "model/activations.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::model {

using compute::kRowTile;
using compute::kTokenTile;

Result<ActivationBuffer> ActivationBuffer::Create(uint32_t max_tokens, uint32_t max_cols,
                                                  InputForms forms) {
  ActivationBuffer result;
  if (forms.quantized) {
    KVERN_ASSIGN_OR_RETURN(result.quantized_, AlignedBuffer::Create(compute::QuantizedTileBytes(
                                                  max_tokens, max_cols)));
  }
  if (forms.floats) {
    KVERN_ASSIGN_OR_RETURN(result.floats_,
                           AlignedBuffer::Create(compute::FloatTileBytes(max_tokens, max_cols)));
  }
  return result;
}

Activations::Activations(ActivationBuffer& buffer, uint32_t num_tokens,
                         std::initializer_list<const compute::PackedMatrix*> readers)
    : quantized_(buffer.quantized_.data()),
      floats_(buffer.floats_.data()),
      num_tokens_(num_tokens),
      cols_((*readers.begin())->cols()) {
  for (const compute::PackedMatrix* reader : readers) {
    CHECK(reader->cols() == cols_);
    forms_.Add(*reader);
  }
  CHECK(!forms_.quantized ||
        compute::QuantizedTileBytes(num_tokens, cols_) <= buffer.quantized_.bytes());
  CHECK(!forms_.floats || compute::FloatTileBytes(num_tokens, cols_) <= buffer.floats_.bytes());
}

uint32_t Activations::NumTiles() const { return (num_tokens_ + kTokenTile - 1) / kTokenTile; }

Activations::TokenTile Activations::TileAt(uint32_t index) const {
  const uint32_t count = num_tokens_ / NumTiles(), longer = num_tokens_ % NumTiles();
  return {index * count + std::min(index, longer), count + (index < longer ? 1 : 0)};
}

Activations::TokenTile Activations::TileOf(uint32_t token) const {
  const uint32_t count = num_tokens_ / NumTiles(), longer = num_tokens_ % NumTiles();
  const uint32_t in_longer = longer * (count + 1);
  return TileAt(token < in_longer ? token / (count + 1) : longer + (token - in_longer) / count);
}

std::byte* Activations::Memory(TokenTile tile, bool quantized) const {
  return quantized ? quantized_ + compute::QuantizedTileBytes(tile.first, cols_)
                   : floats_ + compute::FloatTileBytes(tile.first, cols_);
}

bool Activations::PackColumns(const compute::LinearKernels& kernels, const float* x, uint32_t token,
                              uint32_t first, uint32_t count) const {
  const TokenTile tile = TileOf(token);
  const auto slot = [&](std::byte* columns) {
    return compute::TileSlot{columns, tile.count, token - tile.first};
  };
  bool finite = true;
  if (forms_.quantized) {
    const size_t before = compute::QuantizedTileBytes(tile.count, first);
    finite = kernels.quantize(x, count, slot(Memory(tile, true) + before));
  }
  if (forms_.floats) {
    const size_t before = compute::FloatTileBytes(tile.count, first);
    kernels.pack_floats(x, count, slot(Memory(tile, false) + before));
  }
  return finite;
}

void Activations::Multiply(const compute::LinearKernels& kernels,
                           const compute::PackedMatrix& weights, uint32_t first_tile,
                           uint32_t end_tile, float* out, size_t out_stride) const {
  const bool quantized = weights.format().quantized_input;
  CHECK(weights.cols() == cols_ && (quantized ? forms_.quantized : forms_.floats));
  const auto multiply = kernels.multiply[FormatIndex(weights.format())];
  const uint32_t num_token_tiles = NumTiles();
  // A group of token tiles that stays in the L2 cache meets each row tile in turn.
  const size_t tile_bytes = quantized ? compute::QuantizedTileBytes(kTokenTile, cols_)
                                      : compute::FloatTileBytes(kTokenTile, cols_);
  const uint32_t group =
      static_cast<uint32_t>(std::max<size_t>(1, (size_t{256} << 10) / tile_bytes));
  const bool one_tile = num_token_tiles == 1;
  for (uint32_t begin = 0; begin < num_token_tiles; begin += group) {
    const uint32_t end = std::min(begin + group, num_token_tiles);
    for (uint32_t row_tile = first_tile; row_tile < end_tile;) {
      const uint32_t num_row_tiles = one_tile ? end_tile - first_tile : 1;
      for (uint32_t i = begin; i < end; ++i) {
        const TokenTile tile = TileAt(i);
        multiply({.weights = weights.tile(row_tile),
                  .tile_bytes = weights.tile_bytes(),
                  .num_row_tiles = num_row_tiles,
                  .cols = cols_,
                  .activations = Memory(tile, quantized),
                  .num_tokens = tile.count,
                  .out = out + tile.first * out_stride + (row_tile - first_tile) * kRowTile,
                  .out_stride = out_stride});
      }
      row_tile += num_row_tiles;
    }
  }
}

}  // namespace kvern::model
