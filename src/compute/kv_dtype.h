// KvDtype: how one plane of K or V is stored in a block. K and V choose separately.
//
// A plane holds 16 tokens of one layer and head: K transposed as [head_dim][16], V as [16][v_dim]
// with v_dim = head_dim padded to 16 (rule N4). One row of KvDtypes() per dtype, and its codec in
// kv_dtype/<name>-inl.h; the kernels of every instruction set are instantiated from that codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvern::compute {

enum class KvDtype : uint8_t { kF32, kF16, kBf16 };
inline constexpr size_t kNumKvDtypes = 3;

struct KvDtypeTraits {
  KvDtype dtype;
  std::string_view name;  // as -ctk and -ctv spell it
  bool row_independent;   // rule N5: a stored row depends on its own token only
  size_t element_bytes;
  // Bytes of the plane of 16 tokens; a multiple of 64.
  size_t (*k_plane_bytes)(uint32_t head_dim);
  size_t (*v_plane_bytes)(uint32_t v_dim);
};

// In the order of the enum.
std::span<const KvDtypeTraits> KvDtypes();
const KvDtypeTraits& GetKvDtype(KvDtype dtype);
// Null for an unknown name.
const KvDtypeTraits* FindKvDtype(std::string_view name);

}  // namespace kvern::compute
