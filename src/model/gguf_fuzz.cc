// Opens any bytes as a GGUF file, then lists and decodes what it holds.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/gguf.h"
#include "model/gguf_describe.h"

namespace kvern::model {
namespace {

// Decoded floats take up to 8 times the bytes of a block: one block of each tensor is enough.
void DecodeFirstBlock(const TensorInfo& tensor) {
  const compute::QuantTraits& traits = compute::GetQuantTraits(tensor.type);
  std::vector<float> decoded(traits.block_elements);
  compute::Dequantize(tensor.type, tensor.data.first(traits.block_bytes), decoded);
}

void ReadAll(const Gguf& gguf) {
  (void)DescribeText(gguf, {});
  (void)DescribeJson(gguf, {});
  for (const MetadataEntry& entry : gguf.metadata()) {
    (void)gguf.FindUint(entry.key);
    (void)gguf.FindFloat(entry.key);
    (void)gguf.FindBool(entry.key);
    (void)gguf.FindString(entry.key);
    (void)gguf.FindStrings(entry.key);
    (void)gguf.FindInts(entry.key);
    (void)gguf.FindFloats(entry.key);
  }
  for (const TensorInfo& tensor : gguf.tensors()) {
    if (gguf.GetTensor(tensor.name).ok()) DecodeFirstBlock(tensor);
    gguf.Discard(tensor);
  }
}

}  // namespace
}  // namespace kvern::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto gguf = kvern::model::Gguf::Parse(bytes, "input");
  if (gguf.ok()) kvern::model::ReadAll(*gguf);
  return 0;
}
