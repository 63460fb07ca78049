// Codec of q4r planes: -7 … 7 in a nibble, biased by 8.
#include "compute/kv_dtype/integer_plane.h"

namespace {

struct KvQ4r {
  using Plane = kvern::compute::IntegerPlane<4>;
  static constexpr int kLimit = 7;
  using KeyDot = Dot<15, 8>;

  KVERN_INLINE static U8x64 LoadKeys(const uint8_t* line, int n) {
    const U8x64 pair = LoadBytes(line);
    return n == 0 ? AndBytes(pair, 15) : ExtractBits<4, 15, 0>(pair);
  }
  KVERN_INLINE static U8x64 LoadValues(const uint8_t* line, int n) {
    return SubBytes(LoadKeys(line, n), 8);
  }

  // The unit's half of the byte.
  KVERN_INLINE static void PutKey(uint8_t* byte, uint32_t n, int8_t q) {
    const int nibble = q + 8;
    *byte = static_cast<uint8_t>(n == 0 ? (*byte & 0xF0) | nibble : (*byte & 0x0F) | nibble << 4);
  }
  KVERN_INLINE static void PutValue(uint8_t* byte, uint32_t n, int8_t q) { PutKey(byte, n, q); }
};

}  // namespace
