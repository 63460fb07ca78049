// Parses one GGUF file from its bytes: the part of Gguf that trusts nothing.
//
// Every count, length, offset and kind is checked against the bytes that are there before it is
// used, and no container is sized by a count that the remaining bytes could not hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/quant_blocks.h"
#include "model/gguf_metadata.h"

namespace kvern::model {

struct TensorInfo {
  std::string_view name;
  compute::QuantType type;          // may be unsupported: see compute::FindQuantTraits
  uint32_t num_dims;                // 1 … 4
  std::array<uint64_t, 4> dims;     // elements; dims[0] is contiguous, unused ones are 1
  uint64_t num_elements;            // the product of dims
  std::span<const std::byte> data;  // rows of whole blocks; empty if the type is unsupported
  uint32_t part;                    // which file of a split model, from 0
};

struct GgufPart {
  uint32_t version;
  std::vector<MetadataEntry> metadata;
  std::vector<TensorInfo> tensors;
};

// Views in the result point into `bytes`. `name` is what messages call the file. TensorInfo::part
// is 0. Errors: kCorrupt, kUnsupported.
Result<GgufPart> ParseGgufPart(std::span<const std::byte> bytes, const std::string& name);

// Text from a file, fit for a message: at most 64 bytes, anything but printable ASCII as \xNN.
std::string Printable(std::string_view text);

}  // namespace kvern::model
