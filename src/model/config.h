// ModelConfig: a model's shape and constants, read from GGUF metadata and checked.
//
// Plain data. Everything downstream (weights, KV layout, forward pass) trusts it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/gguf.h"

namespace kvern::model {

enum class RopeStyle {
  kInterleaved,  // pairs (2i, 2i + 1)
  kNeox,         // pairs (i, i + dims / 2)
};

struct ModelConfig {
  std::string architecture;
  std::string name;  // general.name, may be empty
  uint32_t num_layers = 0;
  uint32_t hidden = 0;
  uint32_t ffn_hidden = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;  // divides num_heads
  uint32_t head_dim = 0;
  uint32_t vocab_size = 0;
  uint32_t trained_context = 0;  // tokens
  float rms_eps = 0;

  RopeStyle rope_style = RopeStyle::kInterleaved;
  uint32_t rope_dims = 0;  // leading dimensions of a head that rotate, even
  double rope_base = 10000.0;
  double rope_linear_factor = 1.0;  // positions are divided by it

  bool qkv_bias = false;  // q, k and v projections add a bias
  bool qk_norm = false;   // each q and k head passes an RMSNorm before RoPE

  uint32_t group_size() const { return num_heads / num_kv_heads; }  // query heads per KV head
};

// Reads what all decoder-only architectures share, from keys that start with `architecture`.
// Errors: kNotFound and kCorrupt name the key; kUnsupported says what the model needs.
Result<ModelConfig> ReadDecoderConfig(const Gguf& gguf, std::string_view architecture);

}  // namespace kvern::model
