#include "compute/isa/scalar/dot.h"

namespace {

using SmallDot = Dot<15, 0>;
constexpr int kChains = 1;

template <typename Vector>
void Opaque(Vector& v) {
  asm volatile("" : "+m"(v));
}

}  // namespace

#include "compute/isa/peak-inl.h"
