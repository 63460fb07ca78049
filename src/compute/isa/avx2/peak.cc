#include "compute/isa/avx2/dot.h"

namespace {

using SmallDot = Dot<15, 0>;
constexpr int kChains = 5;  // of two registers

template <typename Vector>
KVERN_INLINE void Opaque(Vector& v) {
  asm volatile("" : "+x"(v.low), "+x"(v.high));
}

}  // namespace

#include "compute/isa/peak-inl.h"
