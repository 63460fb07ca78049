#include "compute/isa/avx512/dot.h"

namespace {

using SmallDot = Dot<15, 0>;
constexpr int kChains = 12;

KVERN_INLINE void Opaque(F32x16& v) { asm volatile("" : "+v"(v)); }
KVERN_INLINE void Opaque(I32x16& v) { asm volatile("" : "+v"(v)); }
KVERN_INLINE void Opaque(U8x64& v) { Opaque(v.bytes); }
KVERN_INLINE void Opaque(SmallDot& v) { Opaque(v.sum); }

}  // namespace

#include "compute/isa/peak-inl.h"
