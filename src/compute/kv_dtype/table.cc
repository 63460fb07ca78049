#include "compute/kv_dtype.h"
#include "kvern/paged_view.h"

namespace kvern::compute {
namespace {

// A plane of plain elements, padded to 64 bytes.
template <size_t kElementBytes>
size_t PlaneBytes(uint32_t dim) {
  return (size_t{dim} * kBlockTokens * kElementBytes + 63) / 64 * 64;
}

constexpr KvDtypeTraits kDtypes[kNumKvDtypes] = {
    {.dtype = KvDtype::kF32,
     .name = "f32",
     .row_independent = true,
     .element_bytes = 4,
     .k_plane_bytes = PlaneBytes<4>,
     .v_plane_bytes = PlaneBytes<4>},
    {.dtype = KvDtype::kF16,
     .name = "f16",
     .row_independent = true,
     .element_bytes = 2,
     .k_plane_bytes = PlaneBytes<2>,
     .v_plane_bytes = PlaneBytes<2>},
    {.dtype = KvDtype::kBf16,
     .name = "bf16",
     .row_independent = true,
     .element_bytes = 2,
     .k_plane_bytes = PlaneBytes<2>,
     .v_plane_bytes = PlaneBytes<2>},
};

}  // namespace

std::span<const KvDtypeTraits> KvDtypes() { return kDtypes; }

const KvDtypeTraits& GetKvDtype(KvDtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

const KvDtypeTraits* FindKvDtype(std::string_view name) {
  for (const KvDtypeTraits& traits : kDtypes) {
    if (traits.name == name) return &traits;
  }
  return nullptr;
}

}  // namespace kvern::compute
