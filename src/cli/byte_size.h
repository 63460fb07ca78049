// Sizes of memory as people write them in flags: "24GiB", "131072".
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace kvern::cli {

// A whole number and one of B, KiB, MiB, GiB and TiB (powers of 1024); without a unit it is bytes.
// Errors: kInvalidArgument names `flag`.
Result<uint64_t> ParseByteSize(const char* flag, const std::string& text);

}  // namespace kvern::cli
