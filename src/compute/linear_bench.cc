// Linear layers of the default model's down projection, in cache: every instruction set that this
// CPU runs, every weight type, and numbers of tokens on both sides of a tile.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/isa.h"
#include "compute/packed_matrix.h"
#include "compute/quant_blocks.h"
#include "compute/test_weights.h"

namespace kvern {
void RegisterBenchmarks();  // called by tests/bench/bench_main.cc
}  // namespace kvern

namespace kvern::compute {
namespace {

constexpr uint32_t kRows = 576;
constexpr uint32_t kCols = 1536;
constexpr uint32_t kTokens[] = {1, 2, 3, 4, 8, 9, 16, 32, 64, 512};
constexpr uint64_t kSeed = 1;

size_t TileBytes(bool quantized, uint32_t num_tokens) {
  return quantized ? QuantizedTileBytes(num_tokens, kCols) : FloatTileBytes(num_tokens, kCols);
}

// Random tokens, in tiles.
AlignedBuffer PackTokens(const LinearKernels& kernels, bool quantized, uint32_t num_tokens) {
  AlignedBuffer buffer = AlignedBuffer::Create(TileBytes(quantized, num_tokens)).value();
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> row(kCols);
  for (uint32_t token = 0; token < num_tokens; ++token) {
    for (float& value : row) value = normal(random);
    const uint32_t first = token / kTokenTile * kTokenTile;
    const TileSlot slot = {.tile = buffer.data() + TileBytes(quantized, first),
                           .num_tokens = std::min(kTokenTile, num_tokens - first),
                           .token = token - first};
    if (quantized) {
      kernels.quantize(row.data(), kCols, slot);
    } else {
      kernels.pack_floats(row.data(), kCols, slot);
    }
  }
  return buffer;
}

void Multiply(benchmark::State& state, const Isa& isa, const WeightFormat& format,
              uint32_t num_tokens) {
  const bool quantized = format.quantized_input;
  PackedMatrix weights = PackedMatrix::Create(format.type, kRows, kCols).value();
  const auto source = RandomWeights(format.type, kRows, kCols, kSeed);
  weights.PackTiles(source.data(), 0, weights.num_tiles());
  const AlignedBuffer tokens = PackTokens(*isa.linear, quantized, num_tokens);
  std::vector<float> out(size_t{num_tokens} * kRows);
  const auto multiply = isa.linear->multiply[FormatIndex(format)];
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t first = 0; first < num_tokens; first += kTokenTile) {
      multiply({.weights = weights.tile(0),
                .tile_bytes = weights.tile_bytes(),
                .num_row_tiles = weights.num_tiles(),
                .cols = kCols,
                .activations = tokens.data() + TileBytes(quantized, first),
                .num_tokens = std::min(kTokenTile, num_tokens - first),
                .out = out.data() + size_t{first} * kRows,
                .out_stride = kRows});
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 2 * kRows * kCols * num_tokens);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(weights.bytes()));
}

void RegisterAll() {
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (const WeightFormat& format : WeightFormats()) {
      for (const uint32_t num_tokens : kTokens) {
        const std::string name =
            fmt::format("{}/{}/{}", isa.name, GetQuantTraits(format.type).name, num_tokens);
        benchmark::RegisterBenchmark(name.c_str(), [&isa, &format, num_tokens](auto& state) {
          Multiply(state, isa, format, num_tokens);
        });
      }
    }
  }
}

}  // namespace
}  // namespace kvern::compute

void kvern::RegisterBenchmarks() { compute::RegisterAll(); }
