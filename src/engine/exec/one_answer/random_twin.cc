#include "engine/exec/one_answer/random_twin.h"

#include <span>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "compute/quant_blocks.h"
#include "model/gguf.h"

namespace kvern::engine::one_answer {
namespace {

// Of a block, the bytes before its quants. 0: not of a type that this is known of.
size_t ScaleBytes(compute::QuantType type) {
  switch (type) {
    case compute::QuantType::kQ4_0:
    case compute::QuantType::kQ8_0:
      return 2;
    case compute::QuantType::kQ4_1:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

Status WriteRandomTwin(const std::string& path, const std::string& twin_path) {
  KVERN_ASSIGN_OR_RETURN(std::string twin, ReadTextFile(path));
  const auto bytes = std::as_bytes(std::span(twin));
  KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Parse(bytes, path));
  SplitMix64 random(1);
  size_t num_changed = 0;
  for (const model::TensorInfo& tensor : gguf.tensors()) {
    const size_t scale_bytes = ScaleBytes(tensor.type);
    if (scale_bytes == 0) continue;
    ++num_changed;
    const size_t block_bytes = compute::GetQuantTraits(tensor.type).block_bytes;
    const auto begin = static_cast<size_t>(tensor.data.data() - bytes.data());
    for (size_t at = begin; at < begin + tensor.data.size(); at += block_bytes) {
      for (size_t i = scale_bytes; i < block_bytes; ++i) {
        twin[at + i] = static_cast<char>(random.Next() >> 56);
      }
    }
  }
  if (num_changed == 0) {
    return Errorf(ErrorCode::kUnsupported, "{}: has no tensors of type Q4_0, Q4_1 or Q8_0", path);
  }
  return WriteTextFile(twin_path, twin);
}

}  // namespace kvern::engine::one_answer
