#include "engine/exec/fingerprint.h"

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "compute/numerics_version.h"

namespace kvern::engine {
namespace {

template <typename T>
void AddValue(Hasher128& hasher, const T& value) {
  hasher.Add(std::as_bytes(std::span(&value, 1)));
}

// Its length first, so that no two lists of texts look alike.
void AddText(Hasher128& hasher, std::string_view text) {
  AddValue(hasher, uint64_t{text.size()});
  hasher.Add(std::as_bytes(std::span(text)));
}

Hash128 HashTensor(const model::TensorInfo& tensor) {
  Hasher128 hasher;
  AddText(hasher, tensor.name);
  AddValue(hasher, tensor.type);
  AddValue(hasher, tensor.dims);
  hasher.Add(tensor.data);
  return hasher.Digest();
}

std::string WeightsDigest(const model::Gguf& gguf, ThreadTeam& team) {
  const std::span<const model::TensorInfo> tensors = gguf.tensors();
  std::vector<Hash128> hashes(tensors.size());
  std::atomic<size_t> next{0};  // sizes differ too much for equal shares
  team.Run([&](size_t) {
    for (size_t i = next++; i < tensors.size(); i = next++) {
      hashes[i] = HashTensor(tensors[i]);
      if (!tensors[i].data.empty()) gguf.Discard(tensors[i]);
    }
  });
  Hasher128 all;
  for (const Hash128& hash : hashes) AddValue(all, hash);
  return all.Digest().ToHex();
}

void AddMetadata(Hasher128& hasher, const model::MetadataValue& value) {
  AddValue(hasher, value.kind);
  if (const auto* const text = std::get_if<std::string_view>(&value.value)) {
    AddText(hasher, *text);
  } else if (const auto* const array = std::get_if<model::MetadataArray>(&value.value)) {
    AddValue(hasher, array->element_kind);
    AddValue(hasher, array->count);
    hasher.Add(array->bytes);
  } else if (const auto* const flag = std::get_if<bool>(&value.value)) {
    AddValue(hasher, *flag);
  } else if (const auto* const real = std::get_if<double>(&value.value)) {
    AddValue(hasher, *real);
  } else if (const auto* const integer = std::get_if<int64_t>(&value.value)) {
    AddValue(hasher, *integer);
  } else {
    AddValue(hasher, std::get<uint64_t>(value.value));
  }
}

// What turns text into tokens. A chat template only writes text.
std::string TokenizerDigest(const model::Gguf& gguf) {
  Hasher128 hasher;
  for (const model::MetadataEntry& entry : gguf.metadata()) {
    if (!entry.key.starts_with("tokenizer.ggml.")) continue;
    AddText(hasher, entry.key);
    AddMetadata(hasher, entry.value);
  }
  return hasher.Digest().ToHex();
}

void AddConfig(std::vector<kv::FingerprintField>& fields, const model::ModelConfig& config) {
  // A new member does not compile here until somebody has decided whether rows depend on it. They
  // do not on a name, or on how long a text may be.
  const auto& [architecture, name, num_layers, hidden, ffn_hidden, num_heads, num_kv_heads,
               head_dim, vocab_size, trained_context, rms_eps, rope_style, rope_dims, rope_base,
               rope_linear_factor, qkv_bias, qk_norm] = config;
  (void)name, (void)trained_context;
  const auto number = [&](std::string field, uint64_t value) {
    fields.push_back({.name = "config." + std::move(field), .value = value});
  };
  const auto real = [&](std::string field, double value) {
    fields.push_back({.name = "config." + std::move(field), .value = value});
  };
  fields.push_back({.name = "config.architecture", .value = architecture});
  number("layers", num_layers);
  number("hidden", hidden);
  number("ffn_hidden", ffn_hidden);
  number("heads", num_heads);
  number("kv_heads", num_kv_heads);
  number("head_dim", head_dim);
  number("vocab_size", vocab_size);
  real("rms_eps", double{rms_eps});
  number("rope_neox", rope_style == model::RopeStyle::kNeox ? 1 : 0);
  number("rope_dims", rope_dims);
  real("rope_base", rope_base);
  real("rope_linear_factor", rope_linear_factor);
  number("qkv_bias", qkv_bias ? 1 : 0);
  number("qk_norm", qk_norm ? 1 : 0);
}

void AddLayout(std::vector<kv::FingerprintField>& fields, const compute::KvLayout& layout) {
  const auto text = [&](std::string field, std::string_view value) {
    fields.push_back({.name = std::move(field), .value = std::string(value)});
  };
  text("kv.k_dtype", compute::GetKvDtype(layout.k_dtype).name);
  text("kv.v_dtype", compute::GetKvDtype(layout.v_dtype).name);
  text("kv.scales", "none");
  text("kv.lanes", "layer, head, k[head_dim][16], v[16][v_dim]");
  fields.push_back({.name = "kv.v_dim", .value = uint64_t{layout.v_dim()}});
  fields.push_back({.name = "kv.block_tokens", .value = uint64_t{kBlockTokens}});
  fields.push_back({.name = "kv.chunk_tokens", .value = uint64_t{kChunkTokens}});
}

}  // namespace

kv::NamespaceSpec MakeNamespaceSpec(const model::Gguf& gguf, const model::ModelConfig& config,
                                    const compute::KvLayout& layout, ThreadTeam& team) {
  kv::NamespaceSpec spec;
  spec.numerics_version = compute::kNumericsVersion;
  spec.fingerprint = {{.name = "weights", .value = WeightsDigest(gguf, team)},
                      {.name = "tokenizer", .value = TokenizerDigest(gguf)}};
  AddConfig(spec.fingerprint, config);
  AddLayout(spec.fingerprint, layout);
  return spec;
}

}  // namespace kvern::engine
