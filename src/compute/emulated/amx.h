// The tile registers of AMX as arrays, for tests on CPUs without them. Contracts: isa/amx/tile.h,
// which this file stands in for.
//
// What the CPU would refuse aborts: a tile that has no shape, shapes that do not fit together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "compute/isa/amx/tile_shapes.h"

namespace {

struct EmulatedTile {
  uint32_t rows, row_bytes;
  uint8_t bytes[kTileRows][kTileRowBytes];
};
EmulatedTile emulated_tiles[8];  // tests run on one thread

inline EmulatedTile& ShapedTile(int tile) {
  EmulatedTile& shaped = emulated_tiles[tile];
  if (shaped.rows == 0 || shaped.row_bytes == 0) std::abort();
  return shaped;
}

inline void ConfigureTiles(const TileShapes& shapes) {
  for (int i = 0; i < 8; ++i) {
    if (shapes.rows[i] > kTileRows || shapes.row_bytes[i] > kTileRowBytes) std::abort();
    emulated_tiles[i] = {.rows = shapes.rows[i], .row_bytes = shapes.row_bytes[i], .bytes = {}};
  }
}
inline void ReleaseTiles() { ConfigureTiles({}); }

template <int kTile>
void ZeroTile() {
  std::memset(ShapedTile(kTile).bytes, 0, sizeof(EmulatedTile::bytes));
}
template <int kTile>
void LoadTile(const void* rows, size_t stride) {
  EmulatedTile& tile = ShapedTile(kTile);
  for (uint32_t m = 0; m < tile.rows; ++m) {
    std::memcpy(tile.bytes[m], static_cast<const char*>(rows) + m * stride, tile.row_bytes);
  }
}
template <int kTile>
void StoreTile(void* rows, size_t stride) {
  const EmulatedTile& tile = ShapedTile(kTile);
  for (uint32_t m = 0; m < tile.rows; ++m) {
    std::memcpy(static_cast<char*>(rows) + m * stride, tile.bytes[m], tile.row_bytes);
  }
}

template <int kSums, int kA, int kB, typename A, typename B>
void DotTiles() {
  EmulatedTile& sums = ShapedTile(kSums);
  const EmulatedTile &a = ShapedTile(kA), &b = ShapedTile(kB);
  if (a.rows != sums.rows || a.row_bytes != 4 * b.rows || b.row_bytes != sums.row_bytes) {
    std::abort();
  }
  for (uint32_t m = 0; m < sums.rows; ++m) {
    for (uint32_t n = 0; n < sums.row_bytes / 4; ++n) {
      int32_t sum;
      std::memcpy(&sum, sums.bytes[m] + 4 * n, sizeof sum);
      for (uint32_t k = 0; k < a.row_bytes; ++k) {
        sum += int32_t{static_cast<A>(a.bytes[m][k])} *
               int32_t{static_cast<B>(b.bytes[k / 4][4 * n + k % 4])};
      }
      std::memcpy(sums.bytes[m] + 4 * n, &sum, sizeof sum);
    }
  }
}
template <int kSums, int kA, int kB>
void DotSignedUnsigned() {
  DotTiles<kSums, kA, kB, int8_t, uint8_t>();
}
template <int kSums, int kA, int kB>
void DotUnsignedSigned() {
  DotTiles<kSums, kA, kB, uint8_t, int8_t>();
}

}  // namespace
