// How large the tile registers are (tile.h).
#pragma once

#include <cstdint>

namespace {

constexpr uint32_t kTileRows = 16;
constexpr uint32_t kTileRowBytes = 64;

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, uint32_t num_rows, uint32_t bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

}  // namespace
