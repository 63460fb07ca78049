// qwen3: each query and key head is normalised before RoPE; rotates pairs (i, i + dims / 2).
#include "model/arch/architecture.h"

namespace kvern::model {
namespace {

Result<ModelConfig> ReadQwen3Config(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(ModelConfig config, ReadDecoderConfig(gguf, "qwen3"));
  config.rope_style = RopeStyle::kNeox;
  config.qk_norm = true;
  return config;
}

}  // namespace

extern const Architecture kQwen3;
const Architecture kQwen3 = {.name = "qwen3", .read_config = ReadQwen3Config};

}  // namespace kvern::model
