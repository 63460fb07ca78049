// qwen2: q, k and v have biases; rotates pairs (i, i + dims / 2).
#include "model/arch/architecture.h"

namespace kvern::model {
namespace {

Result<ModelConfig> ReadQwen2Config(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(ModelConfig config, ReadDecoderConfig(gguf, "qwen2"));
  config.rope_style = RopeStyle::kNeox;
  config.qkv_bias = true;
  return config;
}

}  // namespace

extern const Architecture kQwen2;
const Architecture kQwen2 = {.name = "qwen2", .read_config = ReadQwen2Config};

}  // namespace kvern::model
