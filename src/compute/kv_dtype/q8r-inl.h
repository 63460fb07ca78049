// Codec of q8r planes: -127 … 127 in a byte, K biased by 128.
#include "compute/kv_dtype/integer_plane.h"

namespace {

struct KvQ8r {
  using Plane = kvern::compute::IntegerPlane<8>;
  static constexpr int kLimit = 127;
  using KeyDot = Dot<255, 128>;

  // Unit `n` of a line, as KeyDot and as WideDot read it. `n` is a constant once its loop is
  // unrolled.
  KVERN_INLINE static U8x64 LoadKeys(const uint8_t* line, int) { return LoadBytes(line); }
  KVERN_INLINE static U8x64 LoadValues(const uint8_t* line, int) { return LoadBytes(line); }

  KVERN_INLINE static void PutKey(uint8_t* byte, uint32_t, int8_t q) {
    *byte = static_cast<uint8_t>(q + 128);
  }
  KVERN_INLINE static void PutValue(uint8_t* byte, uint32_t, int8_t q) {
    *byte = static_cast<uint8_t>(q);
  }
};

}  // namespace
