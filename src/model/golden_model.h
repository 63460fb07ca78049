// Golden models: small random models, complete GGUF files made in memory.
//
// Every byte is a pure function of the specification, on any machine, so the logits of a golden
// model are known in advance: `kvern version --check` computes them on the user's CPU (rule N12),
// and tests run every part of the engine on them without files. A golden model has a byte-level
// tokenizer, so all that works on a real model works on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/quant_blocks.h"
#include "kvern/ids.h"

namespace kvern::model {

struct GoldenModelSpec {
  std::string architecture = "llama";
  // Dealt in turn to the matrices, in file order.
  std::vector<compute::QuantType> types = {compute::QuantType::kQ8_0};
  uint32_t num_layers = 2;
  uint32_t hidden = 64;
  uint32_t ffn_hidden = 96;
  uint32_t num_heads = 4;
  uint32_t num_kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t vocab_size = 261;  // below 257 the tokenizer lacks bytes
  bool tied_head = false;
  bool rope_factors = false;  // as Llama 3 has them
  // Every few floats (norms, biases, float matrices) one is -0, subnormal, tiny or huge.
  bool extreme = false;
  // The embedding of this token holds an infinity. REQUIRES: the first type is a float type.
  std::optional<TokenId> infinite_token;
  uint64_t seed = 1;
};

// The bytes of the file. REQUIRES: widths that fit the types' blocks, and num_kv_heads divides
// num_heads.
std::vector<std::byte> MakeGoldenModel(const GoldenModelSpec& spec);

}  // namespace kvern::model
