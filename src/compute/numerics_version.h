// The numerics version (rule N12): names the definition of every result bit, docs/numerics.md.
//
// Part of every record's fingerprint. Raise it in the same change that alters any bit that a
// kernel, a table or the sampler gives for the same input.
#pragma once

#include <cstdint>

namespace kvern::compute {

inline constexpr uint32_t kNumericsVersion = 1;

}  // namespace kvern::compute
