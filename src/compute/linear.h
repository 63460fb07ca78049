// Linear layers: out[t][r] = Σ_k weight[r][k] · x[t][k], one bit pattern for any number of tokens.
//
// Activations are packed in tiles of up to kTokenTile tokens, in the form that the weight type
// reads. A tile of T tokens holds, for quantised types and per block of 32 inputs,
//   int8 q[T][32], f32 d[T], f32 s[T], i32 sums[T][2]        (48·T bytes)
// with x ≈ d·q, s = d·float(Σq) and sums over inputs 0–15 and 16–31; for float types f32 x[K][T].
// The definition of every output is in docs/numerics.md; it depends on one token and one row only,
// so tiles, threads and batch sizes cannot change a bit (rules N1, N2).
//
// Plain functions on plain data; safe from any thread on disjoint outputs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvern::compute {

inline constexpr uint32_t kTokenTile = 8;
inline constexpr size_t kNumWeightFormats = 11;

// Bytes of a tile of `num_tokens` with `cols` inputs.
constexpr size_t QuantizedTileBytes(uint32_t num_tokens, uint32_t cols) {
  return size_t{cols} / 32 * 48 * num_tokens;
}
constexpr size_t FloatTileBytes(uint32_t num_tokens, uint32_t cols) {
  return size_t{cols} * 4 * num_tokens;
}

struct LinearTask {
  const std::byte* weights;  // first row tile of a PackedMatrix
  size_t tile_bytes;         // from one row tile to the next
  uint32_t num_row_tiles;
  uint32_t cols;
  const std::byte* activations;  // one tile
  uint32_t num_tokens;           // in the tile: 1 … kTokenTile
  float* out;  // row 16·i + lane of token t at out[t · out_stride + 16·i + lane]
  size_t out_stride;
};

// Where one token of `cols` inputs goes.
struct TileSlot {
  std::byte* tile;
  uint32_t num_tokens;  // in the tile
  uint32_t token;       // < num_tokens
};

struct LinearKernels {
  // Quantises one token into its slot. False if an input is not finite (the token's slot is then
  // all zeros, and its request must fail). cols is a multiple of 32.
  bool (*quantize)(const float* x, uint32_t cols, TileSlot slot);
  // Places one token into a float tile.
  void (*pack_floats)(const float* x, uint32_t cols, TileSlot slot);
  // By FormatIndex() of the weights.
  void (*multiply[kNumWeightFormats])(const LinearTask& task);
};

}  // namespace kvern::compute
