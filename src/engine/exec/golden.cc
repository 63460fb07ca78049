#include "engine/exec/golden.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compute/numerics_version.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"

namespace kvern::engine {
namespace {

using compute::KvDtype;
using compute::QuantType;
using model::GoldenModelSpec;

constexpr uint32_t kNumDecode = 16;

static_assert(compute::kNumericsVersion == 1, "a new version needs new digests below");

// K-quants want widths of 256.
GoldenModelSpec Wide(std::string architecture, QuantType type) {
  GoldenModelSpec spec;
  spec.architecture = std::move(architecture);
  spec.types = {type};
  spec.num_layers = 1;
  spec.hidden = spec.ffn_hidden = 256;
  spec.num_heads = 8;
  spec.head_dim = 32;
  spec.tied_head = true;
  return spec;
}

// Widths, heads and head sizes that are no multiple of a vector.
GoldenModelSpec Odd(QuantType type) {
  GoldenModelSpec spec;
  spec.types = {type};
  spec.hidden = 70;
  spec.ffn_hidden = 50;
  spec.num_heads = 7;
  spec.num_kv_heads = 1;
  spec.head_dim = 20;
  spec.rope_factors = true;
  return spec;
}

GoldenModelSpec Plain(std::string architecture, std::vector<QuantType> types) {
  GoldenModelSpec spec;
  spec.architecture = std::move(architecture);
  spec.types = std::move(types);
  return spec;
}

GoldenModelSpec Extreme() {
  GoldenModelSpec spec = Odd(QuantType::kF32);
  spec.extreme = true;
  return spec;
}

const std::vector<GoldenCase>& Cases() {
  static const std::vector<GoldenCase> cases = {
      {"llama-f32", Odd(QuantType::kF32), KvDtype::kF32, KvDtype::kF32, 24,
       "d220b6ba756fec03ed055642ffca628c"},
      {"llama-f32-extreme", Extreme(), KvDtype::kF16, KvDtype::kF32, 24,
       "874275b5208e3fe1647240ed73b41d79"},
      {"llama-f16", Odd(QuantType::kF16), KvDtype::kF16, KvDtype::kF16, 24,
       "894e8e4eb8194e13cf65f1ed12a1f84a"},
      {"qwen2-bf16", Plain("qwen2", {QuantType::kBf16}), KvDtype::kBf16, KvDtype::kBf16, 24,
       "c5e49f267be37f5e1432d6b1d2b1ba7f"},
      {"qwen3-q8_0", Plain("qwen3", {QuantType::kQ8_0}), KvDtype::kF16, KvDtype::kF16, 24,
       "4260f37a8d015993e544ac180cef1630"},
      {"llama-q4_0", Plain("llama", {QuantType::kQ4_0}), KvDtype::kF32, KvDtype::kF16, 24,
       "66fd82643a6a7f492bc1e15494462aee"},
      {"qwen2-q4_1", Plain("qwen2", {QuantType::kQ4_1}), KvDtype::kF16, KvDtype::kBf16, 24,
       "ad144ba8225bd76f62389d9aa80f1376"},
      {"qwen3-q5_0", Plain("qwen3", {QuantType::kQ5_0}), KvDtype::kBf16, KvDtype::kF32, 24,
       "37ec5ad34ec75ea45f46e4fb9990dbc6"},
      {"llama-q5_1", Plain("llama", {QuantType::kQ5_1}), KvDtype::kF16, KvDtype::kF16, 270,
       "b98a534961571901222b9853611a7e2b"},
      {"llama-q4_k", Wide("llama", QuantType::kQ4_K), KvDtype::kF16, KvDtype::kF16, 24,
       "50c4b13dd4464ca93f7638c0e1705dd3"},
      {"qwen2-q5_k", Wide("qwen2", QuantType::kQ5_K), KvDtype::kF16, KvDtype::kF16, 24,
       "7b0b7064a3ddc8b320a7c30e4608d1e1"},
      {"qwen3-q6_k", Wide("qwen3", QuantType::kQ6_K), KvDtype::kF16, KvDtype::kF16, 24,
       "a1ca4562ba737b70e729f77fc6abf02d"},
      {"llama-mixed", Plain("llama", {QuantType::kQ4_1, QuantType::kF32, QuantType::kQ8_0}),
       KvDtype::kF16, KvDtype::kF16, 24, "77f1238b3a6cfa464d3981ce78781b5c"},
      {"llama-kv-q8r", Odd(QuantType::kF32), KvDtype::kQ8r, KvDtype::kQ8r, 270,
       "1f6c52948024b0df667704de96d4c183"},
      {"qwen3-kv-q8r-wide", Wide("qwen3", QuantType::kQ4_K), KvDtype::kQ8r, KvDtype::kQ8r, 24,
       "cd0a22e991f190d6f9acf72b71ecd71c"},
      {"llama-kv-q4r", Odd(QuantType::kF32), KvDtype::kQ4r, KvDtype::kQ4r, 24,
       "9449ba49b1dbb50780d82180df17eee2"},
  };
  return cases;
}

// One step of new tokens, whose logits all go into `digest`.
Status Step(OpenedModel& model, kv::SequenceCache& cache, std::span<const TokenId> tokens,
            Hasher128& digest) {
  const auto first = static_cast<uint32_t>(cache.length());
  KVERN_RETURN_IF_ERROR(cache.Extend(tokens.size()));
  const PagedView view = cache.View();
  StepPlan plan;
  plan.slices.push_back({.tokens = tokens,
                         .first_position = first,
                         .views = {&view, 1},
                         .num_logits = static_cast<uint32_t>(tokens.size())});
  KVERN_ASSIGN_OR_RETURN(const auto outputs, model.executor().Execute(plan));
  KVERN_RETURN_IF_ERROR(outputs[0].status);
  for (const std::span<const float> logits : outputs[0].logits) digest.Add(std::as_bytes(logits));
  return {};
}

}  // namespace

std::span<const GoldenCase> GoldenCases() { return Cases(); }

Result<Hash128> DigestLogits(const GoldenCase& golden, const compute::Isa& isa,
                             size_t num_threads) {
  const std::vector<std::byte> file = model::MakeGoldenModel(golden.spec);
  KVERN_ASSIGN_OR_RETURN(model::Gguf gguf, model::Gguf::Parse(file, std::string(golden.name)));
  OpenOptions options;
  options.context = golden.num_prefill + kNumDecode;
  options.num_threads = num_threads;
  options.k_dtype = golden.k_dtype;
  options.v_dtype = golden.v_dtype;
  options.isa = isa.name;
  options.max_step_tokens = golden.num_prefill;
  KVERN_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(std::move(gguf), options));

  SplitMix64 random(7);
  std::vector<TokenId> tokens(*options.context);
  for (TokenId& token : tokens) token = TokenId(random.Below(golden.spec.vocab_size));
  const kv::Strategy& strategy = kv::Strategies().front();
  const auto cache = strategy.make(model.MakeCacheOptions());
  Hasher128 digest;
  const std::span<const TokenId> all(tokens);
  KVERN_RETURN_IF_ERROR(Step(model, *cache, all.first(golden.num_prefill), digest));
  for (size_t i = golden.num_prefill; i < all.size(); ++i) {
    KVERN_RETURN_IF_ERROR(Step(model, *cache, all.subspan(i, 1), digest));
  }
  return digest.Digest();
}

Status CheckGoldenLogits(const compute::Isa& isa) {
  for (const GoldenCase& golden : GoldenCases()) {
    KVERN_ASSIGN_OR_RETURN(const Hash128 digest, DigestLogits(golden, isa, /*num_threads=*/1));
    if (digest.ToHex() != golden.logits) {
      return Errorf(ErrorCode::kUnsupported,
                    "{}: the logits of golden model {} are {}, not {} as numerics version {} has "
                    "them: use another --isa, and report this CPU",
                    isa.name, golden.name, digest.ToHex(), golden.logits,
                    compute::kNumericsVersion);
    }
  }
  return {};
}

}  // namespace kvern::engine
