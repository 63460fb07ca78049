#include "compute/rows.h"

#include <array>

namespace kvern::compute {
namespace {

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

std::span<const RowKernels* const> SupportedRows() {
  static constexpr std::array<const RowKernels*, 3> kAll = {&kScalarRows, &kAvx2Rows, &kAvx512Rows};
  static const size_t count = 1 + (HasAvx2() ? 1 : 0) + (HasAvx512() ? 1 : 0);
  return std::span(kAll).first(count);
}

}  // namespace kvern::compute
