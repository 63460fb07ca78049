// What a step does beside linear layers and attention, on rows of the default model's sizes.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "cli/bench_kernels.h"
#include "compute/linear.h"
#include "compute/rows.h"
#include "compute/sampling.h"
#include "kvern/sampling.h"

namespace kvern::cli {
namespace {

constexpr size_t kHidden = 576;
constexpr size_t kFfnHidden = 1536;
constexpr size_t kRopeDims = 64;
constexpr size_t kVocabulary = 49152;
constexpr size_t kRows = 64;                   // of each thread
constexpr size_t kElements = size_t{1} << 22;  // that a run computes, all threads together

// One thread's rows; kernels of any width use the front of each buffer.
struct Rows {
  Rows(const compute::Isa& isa, uint64_t seed)
      : tile(compute::QuantizedTileBytes(1, kFfnHidden)), sampler(isa.rows, kVocabulary) {
    SplitMix64 random(seed);
    for (auto* values : {&x, &y, &out, &logits}) {
      values->resize(kRows * kFfnHidden);
      for (float& value : *values) value = static_cast<float>(random.Uniform() * 8 - 4);
    }
  }

  std::vector<float> x, y, out, logits;
  std::vector<float> cos = std::vector<float>(kRopeDims / 2, 0.6f);
  std::vector<float> sin = std::vector<float>(kRopeDims / 2, 0.8f);
  std::vector<std::byte> tile;
  compute::Sampler sampler;
  SampledToken token;
};
static_assert(kRows * kFfnHidden >= kVocabulary);

struct RowKernel {
  const char* name;
  const char* type;
  size_t width;
  // Computes row `row` < kRows.
  void (*run)(const compute::Isa& isa, Rows& rows, size_t row);
};

void SampleRow(Rows& rows, const SamplingParams& params) {
  const auto logits = std::span(rows.logits).first(kVocabulary);
  CHECK(rows.sampler.Sample(logits, params, {}, {}, rows.token).ok());
}

constexpr RowKernel kRowKernels[] = {
    {"rms_norm", "f32", kHidden,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.rows->rms_norm(&rows.x[row * kHidden], rows.y.data(), kHidden, 1e-5f, rows.out.data());
     }},
    {"add", "f32", kHidden,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.rows->add(&rows.out[row * kHidden], &rows.x[row * kHidden], kHidden);
     }},
    {"silu_mul", "f32", kFfnHidden,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.rows->silu_mul(&rows.x[row * kFfnHidden], &rows.y[row * kFfnHidden], kFfnHidden,
                          rows.out.data());
     }},
    {"quantize", "int8", kFfnHidden,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.linear->quantize(&rows.x[row * kFfnHidden], kFfnHidden,
                            {.tile = rows.tile.data(), .num_tokens = 1, .token = 0});
     }},
    {"rope", "interleaved", kRopeDims,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.rows->rope_interleaved(&rows.y[row * kRopeDims], rows.cos.data(), rows.sin.data(),
                                  kRopeDims);
     }},
    {"rope", "neox", kRopeDims,
     [](const compute::Isa& isa, Rows& rows, size_t row) {
       isa.rows->rope_neox(&rows.y[row * kRopeDims], rows.cos.data(), rows.sin.data(), kRopeDims);
     }},
    {"sample", "greedy", kVocabulary,
     [](const compute::Isa&, Rows& rows, size_t) {
       SamplingParams params;
       params.temperature = 0;
       SampleRow(rows, params);
     }},
    {"sample", "top-k 40", kVocabulary,
     [](const compute::Isa&, Rows& rows, size_t) { SampleRow(rows, SamplingParams()); }},
};

KernelCase MakeCase(const compute::Isa& isa, const RowKernel& kernel,
                    std::shared_ptr<std::vector<Rows>> rows) {
  const size_t count = kElements / kernel.width;
  const auto run = [&isa, &kernel, rows, count](ThreadTeam& team) {
    team.Run([&](size_t thread) {
      const auto [begin, end] = team.Share(count, thread);
      for (size_t i = begin; i < end; ++i) kernel.run(isa, (*rows)[thread], i % kRows);
    });
  };
  return {.kernel = kernel.name,
          .type = kernel.type,
          .shape = fmt::format("{} elements", kernel.width),
          .limit = Limit::kNone,
          .work = static_cast<double>(count * kernel.width),
          .run = run};
}

}  // namespace

std::vector<KernelGroup> RowGroups(const compute::Isa& isa) {
  const auto rows = std::make_shared<std::vector<Rows>>();
  KernelGroup group;
  group.load = [rows, &isa](ThreadTeam& team) {
    for (size_t thread = 0; thread < team.size(); ++thread)
      rows->emplace_back(isa, kKernelSeed + thread);
    return Status();
  };
  for (const RowKernel& kernel : kRowKernels) group.cases.push_back(MakeCase(isa, kernel, rows));
  return {std::move(group)};
}

}  // namespace kvern::cli
