// Attention against one KV chunk, in cache: every instruction set that this CPU runs, every KV
// dtype, and numbers of queries from one decode head to a full tile.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <vector>

#include "base/aligned_buffer.h"
#include "base/rng.h"
#include "compute/attention.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"

namespace kvern {
void RegisterBenchmarks();  // called by tests/bench/bench_main.cc
}  // namespace kvern

namespace kvern::compute {
namespace {

constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kQueries[] = {1, 3, 4, 9, 16, kMaxChunkQueries};
constexpr uint64_t kSeed = 1;

std::vector<float> RandomFloats(size_t count, SplitMix64& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Uniform() * 2 - 1);
  return values;
}

void Attend(benchmark::State& state, const AttentionKernels& kernels, KvDtype dtype,
            uint32_t num_queries) {
  SplitMix64 random(kSeed);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = kHeadDim, .k_dtype = dtype, .v_dtype = dtype};
  AlignedBuffer memory = AlignedBuffer::Create(kChunkBlocks * layout.block_bytes()).value();
  std::vector<std::byte*> blocks;
  for (uint32_t i = 0; i < kChunkBlocks; ++i) {
    std::byte* const block = memory.data() + i * layout.block_bytes();
    blocks.push_back(block);
    for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
      const auto row = RandomFloats(kHeadDim, random);
      kernels.Of(dtype).store_k(row.data(), kHeadDim, slot, block);
      kernels.Of(dtype).store_v(row.data(), kHeadDim, slot, block + layout.k_plane_bytes());
    }
  }
  const auto plain = RandomFloats(size_t{num_queries} * kHeadDim, random);
  std::vector<float> queries(num_queries * size_t{QueryFloats(kHeadDim)});
  for (uint32_t i = 0; i < num_queries; ++i) {
    kernels.Of(dtype).prepare(&plain[size_t{i} * kHeadDim], kHeadDim,
                              &queries[size_t{i} * QueryFloats(kHeadDim)]);
  }
  std::vector<float> partials(num_queries * PartialFloats(layout.v_dim()));
  const std::vector<VisibleRange> visible(num_queries, {0, kChunkTokens});
  const ChunkTask task = {.queries = queries.data(),
                          .num_queries = num_queries,
                          .head_dim = kHeadDim,
                          .v_dim = layout.v_dim(),
                          .blocks = blocks.data(),
                          .num_blocks = kChunkBlocks,
                          .k_offset = layout.k_offset(0, 0),
                          .v_offset = layout.v_offset(0, 0),
                          .visible = visible.data(),
                          .partials = partials.data()};
  for ([[maybe_unused]] auto _ : state) {
    AttendChunk(kernels, dtype, dtype, task);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 4 * kHeadDim * kChunkTokens * num_queries);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(memory.bytes()));
}

void RegisterAll() {
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (const KvDtypeTraits& dtype : KvDtypes()) {
      for (const uint32_t num_queries : kQueries) {
        const std::string name = fmt::format("{}/{}/{}", isa.name, dtype.name, num_queries);
        benchmark::RegisterBenchmark(name.c_str(), [&isa, &dtype, num_queries](auto& state) {
          Attend(state, *isa.attention, dtype.dtype, num_queries);
        });
      }
    }
  }
}

}  // namespace
}  // namespace kvern::compute

void kvern::RegisterBenchmarks() { compute::RegisterAll(); }
