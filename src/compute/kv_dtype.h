// KvDtype: how one plane of K or V is stored in a block. K and V choose separately.
//
// A plane holds 16 tokens of one layer and head. Floats: K transposed as [head_dim][16], V as
// [16][v_dim] with v_dim = head_dim padded to 16 (rule N4). Integers: kv_dtype/integer_plane.h. One
// row of KvDtypes() per dtype, and its codec in kv_dtype/<name>-inl.h; the kernels of every
// instruction set are instantiated from that codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvern::compute {

enum class KvDtype : uint8_t { kF32, kF16, kBf16, kQ8r, kQ4r };
inline constexpr size_t kNumKvDtypes = 5;

// The bytes of one token in a plane: `count` pieces of `bytes`, each `stride` after the one before,
// and its scale.
struct KvRow {
  size_t first, stride;
  uint32_t bytes, count;
  size_t scale;
  uint32_t scale_bytes;  // 0: none
};

struct KvDtypeTraits {
  KvDtype dtype;
  std::string_view name;   // as -ctk and -ctv spell it
  std::string_view alias;  // of llama.cpp, for what it is nearest to; may be empty
  std::string_view help;   // what a row is, in one line
  bool row_independent;    // rule N5: a stored row depends on its own token only
  // Bytes of the plane of 16 tokens; a multiple of 32.
  size_t (*k_plane_bytes)(uint32_t head_dim);
  size_t (*v_plane_bytes)(uint32_t v_dim);
  // Where the row in `slot` lies. Of K, the pieces and scales of neighbouring slots are neighbours.
  KvRow (*k_row)(uint32_t head_dim, uint32_t slot);
  KvRow (*v_row)(uint32_t v_dim, uint32_t slot);
};

// In the order of the enum.
std::span<const KvDtypeTraits> KvDtypes();
const KvDtypeTraits& GetKvDtype(KvDtype dtype);
// By its name or an alias. Null for an unknown one.
const KvDtypeTraits* FindKvDtype(std::string_view name);

}  // namespace kvern::compute
