// The loops of peak.h, written once over the 16-lane vector.
//
// Included by isa/*/peak.cc after that folder's dot.h. That file also defines SmallDot, the dot.h
// type for the smallest weights; Opaque(v), which hides the value of a vector or sum from the
// compiler at no cost; and kChains, a number of accumulators that all fit into registers.
#include <cstddef>
#include <cstdint>

#include "compute/peak.h"

namespace {

// A list of accumulators that compilers keep in registers, as they do not an array's elements.
template <typename Sum, int kCount>
struct Chains {
  Sum sum;
  Chains<Sum, kCount - 1> others;

  template <typename Use>
  KVERN_INLINE void ForEach(Use use) {
    use(sum);
    others.ForEach(use);
  }
};
template <typename Sum>
struct Chains<Sum, 0> {
  template <typename Use>
  KVERN_INLINE void ForEach(Use) {}
};

double PeakDot(size_t rounds) {
  uint8_t bytes[64];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = i % 16;
  const int8_t quad[4] = {1, -2, 3, -4};
  U8x64 w = LoadBytes(bytes);
  Chains<SmallDot, kChains> chains;
  chains.ForEach([](SmallDot& sum) { sum = SmallDot::Begin(Set1Int(0), 0); });
  for (size_t round = 0; round < rounds; ++round) {
    chains.ForEach([&](SmallDot& sum) {
      Opaque(w);  // else one product would serve all sums
      sum.Add(w, quad);
      Opaque(sum);
    });
  }
  return static_cast<double>(rounds) * kChains * 2 * sizeof bytes;
}

struct FmaSum {
  F32x16 value;
};

double PeakFma(size_t rounds) {
  const F32x16 a = Set1(0.75f), b = Set1(0.5f);
  Chains<FmaSum, kChains> chains;
  chains.ForEach([](FmaSum& sum) { sum.value = Set1(0.0f); });
  for (size_t round = 0; round < rounds; ++round) {
    chains.ForEach([&](FmaSum& sum) {
      sum.value = Fma(a, b, sum.value);
      Opaque(sum.value);
    });
  }
  return static_cast<double>(rounds) * kChains * 2 * kLanes;
}

void PeakRead(const std::byte* data, size_t bytes, size_t ahead) {
  const auto* p = reinterpret_cast<const uint8_t*>(data);
  U8x64 seen = LoadBytes(p);
  for (size_t at = 0; at + 64 <= bytes; at += 64) {
    if (ahead > 0) Prefetch(p + at + ahead);
    seen = OrBytes(seen, LoadBytes(p + at));
  }
  Opaque(seen);
}

}  // namespace

namespace kvern::compute::KVERN_ISA {

extern const PeakKernels kPeak;
const PeakKernels kPeak = {.dot = PeakDot, .fma = PeakFma, .read = PeakRead};

}  // namespace kvern::compute::KVERN_ISA
