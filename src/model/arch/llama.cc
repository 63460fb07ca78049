// llama: Llama, Mistral, SmolLM and whatever else is stored as such. Rotates pairs (2i, 2i + 1);
// Llama 3's long-context scaling comes as a tensor of frequency divisors (rope_freqs.weight).
#include "model/arch/architecture.h"

namespace kvern::model {
namespace {

Result<ModelConfig> ReadLlamaConfig(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(ModelConfig config, ReadDecoderConfig(gguf, "llama"));
  config.rope_style = RopeStyle::kInterleaved;
  return config;
}

}  // namespace

extern const Architecture kLlama;
const Architecture kLlama = {.name = "llama", .read_config = ReadLlamaConfig};

}  // namespace kvern::model
