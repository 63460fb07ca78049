#include "compute/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kvern::compute {

namespace scalar {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
extern const PeakKernels kPeak;
}  // namespace scalar
namespace avx2 {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
extern const PeakKernels kPeak;
}  // namespace avx2
// Rows are those of AVX2.
namespace avx2vnni {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
extern const PeakKernels kPeak;
}  // namespace avx2vnni
namespace avx512 {
extern const LinearKernels kLinear;
extern const AttentionKernels kAttention;
extern const PeakKernels kPeak;
}  // namespace avx512
// Linear layers and rows are those of AVX-512.
namespace amx {
extern const AttentionKernels kAttention;
}  // namespace amx

namespace {

bool Always() { return true; }

// Half-float conversions: clang 14 has no name for them in __builtin_cpu_supports.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvx2Vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnni = 1u << 4;
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// Tiles are the process's only once the kernel has been asked for them; it refuses where it cannot
// save them.
bool HasAmx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  if (!HasAvx512() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTile) == 0 || (edx & kInt8) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

constexpr Isa kIsas[] = {
    {.name = "scalar",
     .supported = Always,
     .rows = &kScalarRows,
     .linear = &scalar::kLinear,
     .attention = &scalar::kAttention,
     .peak = &scalar::kPeak},
    {.name = "avx2",
     .supported = HasAvx2,
     .rows = &kAvx2Rows,
     .linear = &avx2::kLinear,
     .attention = &avx2::kAttention,
     .peak = &avx2::kPeak},
    {.name = "avx2vnni",
     .supported = HasAvx2Vnni,
     .rows = &kAvx2Rows,
     .linear = &avx2vnni::kLinear,
     .attention = &avx2vnni::kAttention,
     .peak = &avx2vnni::kPeak},
    {.name = "avx512",
     .supported = HasAvx512,
     .rows = &kAvx512Rows,
     .linear = &avx512::kLinear,
     .attention = &avx512::kAttention,
     .peak = &avx512::kPeak},
    {.name = "amx",
     .supported = HasAmx,
     .rows = &kAvx512Rows,
     .linear = &avx512::kLinear,
     .attention = &amx::kAttention,
     .peak = &avx512::kPeak},
};

std::string SupportedNames() {
  std::string names = "auto";
  for (const Isa& isa : kIsas) {
    if (isa.supported()) names.append(", ").append(isa.name);
  }
  return names;
}

}  // namespace

std::span<const Isa> Isas() { return kIsas; }

Result<const Isa*> SelectIsa(std::string_view name) {
  const Isa* best = nullptr;
  for (const Isa& isa : kIsas) {
    const bool supported = isa.supported();
    if (isa.name == name && !supported) {
      return Errorf(ErrorCode::kUnsupported, "this CPU lacks {}: use one of {}", name,
                    SupportedNames());
    }
    if (isa.name == name) return &isa;
    if (supported) best = &isa;
  }
  if (name == "auto") return best;
  return Errorf(ErrorCode::kInvalidArgument, "unknown instruction set '{}': use one of {}", name,
                SupportedNames());
}

}  // namespace kvern::compute
