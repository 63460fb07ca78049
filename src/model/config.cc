#include "model/config.h"

#include <limits>
#include <optional>

#include "compute/attention.h"

namespace kvern::model {
namespace {

// Beyond these a file is hostile or not for a CPU; they bound every product taken below.
constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxWidth = uint64_t{1} << 20;
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxHeadDim = compute::kMaxHeadDim;

// Typed access to "<architecture>.<key>" with bounds.
class Keys {
 public:
  Keys(const Gguf& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  Result<uint32_t> Uint(std::string_view key, uint64_t max) const {
    KVERN_ASSIGN_OR_RETURN(const uint64_t value, gguf_.GetUint(prefix_ + std::string(key)));
    return Bounded(key, value, max);
  }
  Result<uint32_t> UintOr(std::string_view key, uint64_t max, uint32_t otherwise) const {
    KVERN_ASSIGN_OR_RETURN(const auto value, gguf_.FindUint(prefix_ + std::string(key)));
    if (!value) return otherwise;
    return Bounded(key, *value, max);
  }
  Result<double> FloatOr(std::string_view key, double otherwise) const {
    KVERN_ASSIGN_OR_RETURN(const auto value, gguf_.FindFloat(prefix_ + std::string(key)));
    if (value && !(*value > 0 && *value < 1e12)) {
      return Bad(key, fmt::format("{} is not a positive number", *value));
    }
    return value.value_or(otherwise);
  }
  Result<std::string> StringOr(std::string_view key, std::string_view otherwise) const {
    KVERN_ASSIGN_OR_RETURN(const auto value, gguf_.FindString(prefix_ + std::string(key)));
    return std::string(value.value_or(otherwise));
  }

  Error Bad(std::string_view key, std::string_view why) const {
    return Errorf(ErrorCode::kCorrupt, "{}: {}{}: {}", gguf_.path(), prefix_, key, why);
  }
  Error Unsupported(std::string_view key, std::string_view why) const {
    return Errorf(ErrorCode::kUnsupported, "{}: {}{}: {}", gguf_.path(), prefix_, key, why);
  }

 private:
  Result<uint32_t> Bounded(std::string_view key, uint64_t value, uint64_t max) const {
    if (value == 0 || value > max) {
      return Bad(key, fmt::format("{} is outside 1 … {}", value, max));
    }
    return static_cast<uint32_t>(value);
  }

  const Gguf& gguf_;
  const std::string prefix_;
};

// head_count_kv may be a number or one number per layer; only equal ones are supported.
Result<uint32_t> ReadKvHeads(const Gguf& gguf, const Keys& keys, const std::string& key,
                             uint32_t num_heads) {
  const MetadataValue* value = gguf.Find(key);
  if (value == nullptr || value->kind != MetadataKind::kArray) {
    return keys.UintOr("attention.head_count_kv", kMaxHeads, num_heads);
  }
  KVERN_ASSIGN_OR_RETURN(const auto counts, gguf.GetInts(key));
  for (const int64_t count : counts) {
    if (count != counts[0] || count < 1 || count > int64_t{kMaxHeads}) {
      return keys.Unsupported("attention.head_count_kv", "layers with different head counts");
    }
  }
  if (counts.empty()) return keys.Bad("attention.head_count_kv", "empty");
  return static_cast<uint32_t>(counts[0]);
}

Status ReadAttention(const Gguf& gguf, const Keys& keys, ModelConfig& config) {
  KVERN_ASSIGN_OR_RETURN(config.num_heads, keys.Uint("attention.head_count", kMaxHeads));
  const std::string kv_key = config.architecture + ".attention.head_count_kv";
  KVERN_ASSIGN_OR_RETURN(config.num_kv_heads, ReadKvHeads(gguf, keys, kv_key, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return keys.Bad("attention.head_count_kv", fmt::format("{} does not divide head_count {}",
                                                           config.num_kv_heads, config.num_heads));
  }
  const uint32_t plain_head_dim = config.hidden / config.num_heads;
  KVERN_ASSIGN_OR_RETURN(config.head_dim,
                         keys.UintOr("attention.key_length", kMaxHeadDim, plain_head_dim));
  KVERN_ASSIGN_OR_RETURN(const uint32_t v_dim,
                         keys.UintOr("attention.value_length", kMaxHeadDim, config.head_dim));
  if (v_dim != config.head_dim) {
    return keys.Unsupported("attention.value_length", "values of another width than keys");
  }
  if (config.head_dim == 0 || config.head_dim > kMaxHeadDim) {
    return keys.Bad("embedding_length", fmt::format("gives heads of {} dimensions, outside 1 … {}",
                                                    config.head_dim, kMaxHeadDim));
  }
  return {};
}

Status ReadRope(const Keys& keys, ModelConfig& config) {
  KVERN_ASSIGN_OR_RETURN(config.rope_dims,
                         keys.UintOr("rope.dimension_count", kMaxHeadDim, config.head_dim));
  if (config.rope_dims % 2 != 0 || config.rope_dims > config.head_dim) {
    return keys.Bad("rope.dimension_count",
                    fmt::format("{} is not an even number up to head size {}", config.rope_dims,
                                config.head_dim));
  }
  KVERN_ASSIGN_OR_RETURN(config.rope_base, keys.FloatOr("rope.freq_base", 10000.0));
  KVERN_ASSIGN_OR_RETURN(const std::string scaling, keys.StringOr("rope.scaling.type", "none"));
  if (scaling == "linear") {
    KVERN_ASSIGN_OR_RETURN(config.rope_linear_factor, keys.FloatOr("rope.scaling.factor", 1.0));
  } else if (scaling != "none") {
    return keys.Unsupported("rope.scaling.type",
                            fmt::format("'{}' is not one of none, linear", scaling));
  }
  return {};
}

}  // namespace

Result<ModelConfig> ReadDecoderConfig(const Gguf& gguf, std::string_view architecture) {
  const Keys keys(gguf, architecture);
  ModelConfig config;
  config.architecture = architecture;
  KVERN_ASSIGN_OR_RETURN(const auto name, gguf.FindString("general.name"));
  config.name = name.value_or("");
  KVERN_ASSIGN_OR_RETURN(config.num_layers, keys.Uint("block_count", kMaxLayers));
  KVERN_ASSIGN_OR_RETURN(config.hidden, keys.Uint("embedding_length", kMaxWidth));
  KVERN_ASSIGN_OR_RETURN(config.ffn_hidden, keys.Uint("feed_forward_length", kMaxWidth));
  constexpr uint64_t kMaxContext = std::numeric_limits<int32_t>::max();
  KVERN_ASSIGN_OR_RETURN(config.trained_context, keys.Uint("context_length", kMaxContext));
  KVERN_ASSIGN_OR_RETURN(const double eps, keys.FloatOr("attention.layer_norm_rms_epsilon", 1e-5));
  config.rms_eps = static_cast<float>(eps);
  KVERN_ASSIGN_OR_RETURN(const auto experts, gguf.FindUint(config.architecture + ".expert_count"));
  if (experts.value_or(0) > 1) return keys.Unsupported("expert_count", "mixture-of-experts models");
  KVERN_RETURN_IF_ERROR(ReadAttention(gguf, keys, config));
  KVERN_RETURN_IF_ERROR(ReadRope(keys, config));
  KVERN_ASSIGN_OR_RETURN(const TensorInfo* embedding, gguf.GetTensor("token_embd.weight"));
  if (embedding->num_dims != 2 || embedding->dims[1] > kMaxWidth) {
    return Errorf(ErrorCode::kCorrupt, "{}: token_embd.weight: not a matrix of at most {} rows",
                  gguf.path(), kMaxWidth);
  }
  config.vocab_size = static_cast<uint32_t>(embedding->dims[1]);
  return config;
}

}  // namespace kvern::model
