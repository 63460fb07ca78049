// KvTypes: a type of K and a type of V, as `kvern bench kv` compares them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "compute/kv_dtype.h"

namespace kvern::cli {

struct KvTypes {
  compute::KvDtype k;
  compute::KvDtype v;

  bool operator==(const KvTypes&) const = default;
};

// What the others are compared with.
inline constexpr KvTypes kF16Types = {compute::KvDtype::kF16, compute::KvDtype::kF16};
inline constexpr KvTypes kF32Types = {compute::KvDtype::kF32, compute::KvDtype::kF32};

// "q8r", or "q8r/f16" where K and V differ.
std::string NameOf(const KvTypes& types);

// A list of names as NameOf() gives them, or with aliases. f16 comes first, listed or not; none
// comes twice. Errors: kInvalidArgument names `flag` and the types that exist.
Result<std::vector<KvTypes>> ParseKvTypes(const char* flag, const std::vector<std::string>& names);

}  // namespace kvern::cli
