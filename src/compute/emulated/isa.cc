// The table of instruction sets for tests on CPUs without them: what isa.cc has, emulated. A
// program that links this file gets it in place of isa.cc.
#include "compute/isa.h"

#include <iterator>

namespace kvern::compute {

namespace scalar {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
}  // namespace scalar
namespace avx2vnni {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
}  // namespace avx2vnni
namespace avx512 {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
}  // namespace avx512
namespace amx {
extern const AttentionKernels kAttention;
}  // namespace amx

namespace {

bool Always() { return true; }

// The emulation is made of AVX2.
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

constexpr Isa kIsas[] = {
    {.name = "scalar",
     .supported = Always,
     .rows = &kScalarRows,
     .linear = &scalar::kLinear,
     .attention = &scalar::kAttention,
     .peak = nullptr},
    {.name = "avx2vnni",
     .supported = HasAvx2,
     .rows = &kAvx2Rows,
     .linear = &avx2vnni::kLinear,
     .attention = &avx2vnni::kAttention,
     .peak = nullptr},
    {.name = "avx512",
     .supported = HasAvx2,
     .rows = &kAvx512Rows,
     .linear = &avx512::kLinear,
     .attention = &avx512::kAttention,
     .peak = nullptr},
    {.name = "amx",
     .supported = HasAvx2,
     .rows = &kAvx512Rows,
     .linear = &avx512::kLinear,
     .attention = &amx::kAttention,
     .peak = nullptr},
};

}  // namespace

std::span<const Isa> Isas() { return kIsas; }

Result<const Isa*> SelectIsa(std::string_view name) {
  for (const Isa& isa : kIsas) {
    if (isa.name == name) return &isa;
  }
  return &kIsas[std::size(kIsas) - 1];
}

}  // namespace kvern::compute
