// Linear layers: every weight type, as one token reads it (gemv) and as many do (gemm).
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "cli/bench_kernels.h"
#include "compute/packed_matrix.h"
#include "compute/quant_blocks.h"
#include "compute/test_weights.h"
#include "model/activations.h"

namespace kvern::cli {
namespace {

using compute::PackedMatrix;
using compute::WeightFormat;

// Weights that no cache holds, of the default model's larger width.
constexpr size_t kWeightBytes = size_t{96} << 20;
constexpr uint32_t kCols = 1536;
constexpr uint32_t kGemmTiles = 96;  // row tiles of a gemm: 1,536 rows, others in each run
constexpr uint32_t kGemmTokens[] = {8, 32, 512};

uint32_t NumTiles(const WeightFormat& format) {
  return static_cast<uint32_t>(kWeightBytes / compute::TileBytes(format, kCols) + 1);
}

// Packed random tokens.
struct Tokens {
  Tokens(model::ActivationBuffer memory, uint32_t num_tokens, const PackedMatrix& reader)
      : buffer(std::move(memory)), view(buffer, num_tokens, {&reader}) {}

  model::ActivationBuffer buffer;
  model::Activations view;
};

class LinearRun {
 public:
  explicit LinearRun(const compute::Isa* isa) : kernels_(*isa->linear) {}

  Status Load(const WeightFormat& format, ThreadTeam& team);

  void Gemv(ThreadTeam& team) {
    Multiply(team, *one_token_, 0, weights_.num_tiles(), out_.as<float>());
  }

  void Gemm(ThreadTeam& team, size_t index) {
    const uint32_t first = next_tile_;
    next_tile_ = (next_tile_ + kGemmTiles) % (weights_.num_tiles() - kGemmTiles);
    Multiply(team, *many_tokens_[index], first, kGemmTiles, out_.as<float>());
  }

 private:
  Result<std::unique_ptr<Tokens>> MakeTokens(uint32_t num_tokens) const;

  // The rows of `num_tiles` row tiles, to [tokens][rows].
  void Multiply(ThreadTeam& team, const Tokens& tokens, uint32_t first_tile, uint32_t num_tiles,
                float* out) const {
    // Where row 0 of the matrix would go.
    float* const origin = out - size_t{first_tile} * compute::kRowTile;
    team.Run([&](size_t thread) {
      const auto [begin, end] = team.Share(num_tiles, thread);
      tokens.view.Multiply(kernels_, weights_, first_tile + static_cast<uint32_t>(begin),
                           first_tile + static_cast<uint32_t>(end), origin,
                           size_t{num_tiles} * compute::kRowTile);
    });
  }

  const compute::LinearKernels& kernels_;
  PackedMatrix weights_;
  std::unique_ptr<Tokens> one_token_;
  std::vector<std::unique_ptr<Tokens>> many_tokens_;  // in the order of kGemmTokens
  AlignedBuffer out_;
  uint32_t next_tile_ = 0;
};

Result<std::unique_ptr<Tokens>> LinearRun::MakeTokens(uint32_t num_tokens) const {
  model::InputForms forms;
  forms.Add(weights_);
  KVERN_ASSIGN_OR_RETURN(auto buffer, model::ActivationBuffer::Create(num_tokens, kCols, forms));
  auto tokens = std::make_unique<Tokens>(std::move(buffer), num_tokens, weights_);
  std::mt19937_64 random(kKernelSeed);
  std::normal_distribution<float> normal;
  std::vector<float> row(kCols);
  for (uint32_t token = 0; token < num_tokens; ++token) {
    for (float& value : row) value = normal(random);
    tokens->view.Pack(kernels_, row.data(), token);
  }
  return tokens;
}

// A few random rows, again and again.
std::vector<std::byte> MakeSource(const WeightFormat& format, uint32_t rows) {
  const auto some = compute::RandomWeights(format.type, compute::kRowTile, kCols, kKernelSeed);
  std::vector<std::byte> source(some.size() / compute::kRowTile * rows);
  for (size_t at = 0; at < source.size(); at += some.size()) {
    std::memcpy(&source[at], some.data(), some.size());
  }
  return source;
}

Status LinearRun::Load(const WeightFormat& format, ThreadTeam& team) {
  const uint32_t rows = NumTiles(format) * compute::kRowTile;
  KVERN_ASSIGN_OR_RETURN(weights_, PackedMatrix::Create(format.type, rows, kCols));
  const auto source = MakeSource(format, rows);
  team.Run([&](size_t thread) {
    const auto [begin, end] = team.Share(weights_.num_tiles(), thread);
    weights_.PackTiles(source.data(), static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
  });
  KVERN_ASSIGN_OR_RETURN(one_token_, MakeTokens(1));
  size_t most = rows;
  for (const uint32_t num_tokens : kGemmTokens) {
    KVERN_ASSIGN_OR_RETURN(auto tokens, MakeTokens(num_tokens));
    many_tokens_.push_back(std::move(tokens));
    most = std::max(most, size_t{num_tokens} * kGemmTiles * compute::kRowTile);
  }
  KVERN_ASSIGN_OR_RETURN(out_, AlignedBuffer::Create(most * sizeof(float)));
  return {};
}

KernelGroup MakeGroup(const compute::Isa& isa, const WeightFormat& format) {
  const auto data = std::make_shared<LinearRun>(&isa);
  const std::string type(compute::GetQuantTraits(format.type).name);
  const size_t bytes = NumTiles(format) * compute::TileBytes(format, kCols);
  KernelGroup group;
  group.load = [data, &format](ThreadTeam& team) { return data->Load(format, team); };
  group.cases.push_back({.kernel = "gemv",
                         .type = type,
                         .shape = fmt::format("1 token, {} MiB", bytes >> 20),
                         .limit = Limit::kRead,
                         .work = static_cast<double>(bytes),
                         .run = [data](ThreadTeam& team) { data->Gemv(team); }});
  for (size_t i = 0; i < std::size(kGemmTokens); ++i) {
    group.cases.push_back({.kernel = "gemm",
                           .type = type,
                           .shape = fmt::format("{} tokens", kGemmTokens[i]),
                           .limit = format.quantized_input ? Limit::kDot : Limit::kFma,
                           .work = 2.0 * kGemmTokens[i] * kGemmTiles * compute::kRowTile * kCols,
                           .run = [data, i](ThreadTeam& team) { data->Gemm(team, i); }});
  }
  return group;
}

}  // namespace

std::vector<KernelGroup> LinearGroups(const compute::Isa& isa) {
  std::vector<KernelGroup> groups;
  for (const WeightFormat& format : compute::WeightFormats()) {
    groups.push_back(MakeGroup(isa, format));
  }
  return groups;
}

}  // namespace kvern::cli
