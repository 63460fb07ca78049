#include "compute/kv_dtype.h"
#include "compute/kv_dtype/integer_plane.h"
#include "kvern/paged_view.h"

namespace kvern::compute {
namespace {

template <uint32_t kElementBytes>
struct FloatPlane {
  static size_t Bytes(uint32_t dim) {
    return (size_t{dim} * kBlockTokens * kElementBytes + 63) / 64 * 64;
  }
  static KvRow KeyRow(uint32_t head_dim, uint32_t slot) {
    return {.first = size_t{slot} * kElementBytes,
            .stride = kBlockTokens * kElementBytes,
            .bytes = kElementBytes,
            .count = head_dim,
            .scale = 0,
            .scale_bytes = 0};
  }
  static KvRow ValueRow(uint32_t v_dim, uint32_t slot) {
    return {.first = size_t{slot} * v_dim * kElementBytes,
            .stride = 0,
            .bytes = v_dim * kElementBytes,
            .count = 1,
            .scale = 0,
            .scale_bytes = 0};
  }
};

template <uint32_t kElementBytes>
constexpr KvDtypeTraits Float(KvDtype dtype, std::string_view name, std::string_view help) {
  using Plane = FloatPlane<kElementBytes>;
  return {.dtype = dtype,
          .name = name,
          .alias = {},
          .help = help,
          .row_independent = true,
          .k_plane_bytes = Plane::Bytes,
          .v_plane_bytes = Plane::Bytes,
          .k_row = Plane::KeyRow,
          .v_row = Plane::ValueRow};
}

template <int kBits>
constexpr KvDtypeTraits Integer(KvDtype dtype, std::string_view name, std::string_view alias,
                                std::string_view help) {
  using Plane = IntegerPlane<kBits>;
  return {.dtype = dtype,
          .name = name,
          .alias = alias,
          .help = help,
          .row_independent = true,
          .k_plane_bytes = Plane::KeyPlaneBytes,
          .v_plane_bytes = Plane::ValuePlaneBytes,
          .k_row = Plane::KeyRow,
          .v_row = Plane::ValueRow};
}

constexpr KvDtypeTraits kDtypes[kNumKvDtypes] = {
    Float<4>(KvDtype::kF32, "f32", "floats, as computed"),
    Float<2>(KvDtype::kF16, "f16", "floats in 16 bits, 11 of them precise"),
    Float<2>(KvDtype::kBf16, "bf16", "floats in 16 bits, 8 of them precise"),
    Integer<8>(KvDtype::kQ8r, "q8r", "q8_0", "8 bits, K rotated, a scale for each token and head"),
    Integer<4>(KvDtype::kQ4r, "q4r", "q4_0",
               "4 bits, K rotated, a scale for each token and head; experimental, loses much"),
};

}  // namespace

std::span<const KvDtypeTraits> KvDtypes() { return kDtypes; }

const KvDtypeTraits& GetKvDtype(KvDtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

const KvDtypeTraits* FindKvDtype(std::string_view name) {
  for (const KvDtypeTraits& traits : kDtypes) {
    if (traits.name == name || (!traits.alias.empty() && traits.alias == name)) return &traits;
  }
  return nullptr;
}

}  // namespace kvern::compute
