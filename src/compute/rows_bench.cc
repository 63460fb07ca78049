// Operations on one row, in cache: every instruction set that this CPU runs, at the default model's
// widths.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <vector>

#include "base/rng.h"
#include "compute/isa.h"
#include "compute/rows.h"

namespace kvern {
void RegisterBenchmarks();  // called by tests/bench/bench_main.cc
}  // namespace kvern

namespace kvern::compute {
namespace {

constexpr size_t kHidden = 576;
constexpr size_t kFfnHidden = 1536;
constexpr size_t kHeadDim = 64;
constexpr size_t kVocabulary = 49152;
constexpr uint64_t kSeed = 1;

struct Operands {
  std::vector<float> x, y, out;
};

struct RowBenchmark {
  const char* name;
  size_t width;
  void (*run)(const Isa& isa, Operands& row, size_t n);
};

template <RowFunction RowKernels::*kFunction>
void Map(const Isa& isa, Operands& row, size_t n) {
  (isa.rows->*kFunction)(row.x.data(), n, row.out.data());
}

constexpr RowBenchmark kBenchmarks[] = {
    {"rms_norm", kHidden,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.rows->rms_norm(row.x.data(), row.y.data(), n, 1e-5f, row.out.data());
     }},
    {"add", kHidden,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.rows->add(row.out.data(), row.x.data(), n);
     }},
    {"scale", kHidden,
     [](const Isa& isa, Operands& row, size_t n) { isa.rows->scale(row.out.data(), -1.0f, n); }},
    {"silu_mul", kFfnHidden,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.rows->silu_mul(row.x.data(), row.y.data(), n, row.out.data());
     }},
    {"quantize", kFfnHidden,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.linear->quantize(
           row.x.data(), static_cast<uint32_t>(n),
           {.tile = reinterpret_cast<std::byte*>(row.out.data()), .num_tokens = 1, .token = 0});
     }},
    {"rope_interleaved", kHeadDim,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.rows->rope_interleaved(row.out.data(), row.x.data(), row.y.data(), n);
     }},
    {"rope_neox", kHeadDim,
     [](const Isa& isa, Operands& row, size_t n) {
       isa.rows->rope_neox(row.out.data(), row.x.data(), row.y.data(), n);
     }},
    {"all_finite", kVocabulary,
     [](const Isa& isa, Operands& row, size_t n) {
       benchmark::DoNotOptimize(isa.rows->all_finite(row.x.data(), n));
     }},
    {"log_sum_exp", kVocabulary,
     [](const Isa& isa, Operands& row, size_t n) {
       benchmark::DoNotOptimize(isa.rows->log_sum_exp(row.x.data(), n));
     }},
    {"softmax", kVocabulary,
     [](const Isa& isa, Operands& row, size_t n) { isa.rows->softmax(row.out.data(), n); }},
    {"exp", kFfnHidden, Map<&RowKernels::exp>},
    {"log", kFfnHidden, Map<&RowKernels::log>},
    {"tanh", kFfnHidden, Map<&RowKernels::tanh>},
    {"silu", kFfnHidden, Map<&RowKernels::silu>},
    {"gelu_tanh", kFfnHidden, Map<&RowKernels::gelu_tanh>},
};

// x and y hold the cosine and sine of one angle, so that turning a row again and again keeps it
// finite, and are as good as any for the others.
void Run(benchmark::State& state, const Isa& isa, const RowBenchmark& row) {
  Operands operands = {.x = std::vector<float>(row.width, 0.6f),
                       .y = std::vector<float>(row.width, 0.8f),
                       .out = std::vector<float>(row.width)};
  SplitMix64 random(kSeed);
  for (float& value : operands.out) value = static_cast<float>(random.Uniform() * 2 - 1);
  for ([[maybe_unused]] auto _ : state) {
    row.run(isa, operands, row.width);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(row.width));
}

void RegisterAll() {
  for (const Isa& isa : Isas()) {
    if (!isa.supported()) continue;
    for (const RowBenchmark& row : kBenchmarks) {
      const std::string name = fmt::format("{}/{}/{}", isa.name, row.name, row.width);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&isa, &row](auto& state) { Run(state, isa, row); });
    }
  }
}

}  // namespace
}  // namespace kvern::compute

void kvern::RegisterBenchmarks() { compute::RegisterAll(); }
