#define KVERN_ISA avx2vnni
#include "compute/isa/avx2vnni/dot.h"

namespace {

using SmallDot = Dot<15, 0>;
constexpr int kChains = 5;  // of two registers

template <typename Vector>
KVERN_INLINE void Opaque(Vector& v) {
  asm volatile("" : "+x"(v.low), "+x"(v.high));
}
KVERN_INLINE void Opaque(SmallDot& v) { Opaque(v.sum); }

}  // namespace

#include "compute/isa/peak-inl.h"
