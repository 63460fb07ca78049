// What `kvern inspect` says of a model file: metadata in file order, tensors, totals, bits per
// weight, and what a token costs in the KV cache.
//
// Arrays show their first elements and their length; the text form also shortens strings and
// escapes what a terminal must not be sent. Pure functions; they cannot fail.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/gguf.h"

namespace kvern::model {

// What one token takes in the KV cache, for one choice of dtypes.
struct KvCost {
  std::string dtype;
  uint64_t bytes_per_token;
};

// `kv_costs` is empty where the architecture is unknown: the file is described all the same.
std::string DescribeText(const Gguf& gguf, std::span<const KvCost> kv_costs);

// One JSON object, indented by two. Bytes of text that are not UTF-8 become U+FFFD; numbers that
// JSON lacks (NaN, infinity) become null.
std::string DescribeJson(const Gguf& gguf, std::span<const KvCost> kv_costs);

}  // namespace kvern::model
