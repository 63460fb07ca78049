// ScopedFpEnv: the floating-point environment that every result is defined in (rule N7).
//
// Round to nearest, no flush-to-zero, no denormals-are-zero, all exceptions masked. The caller's
// state is back when the scope ends. Affects the calling thread only.
#pragma once

#include <immintrin.h>

namespace kvern {

class ScopedFpEnv {
 public:
  ScopedFpEnv() : saved_(_mm_getcsr()) { _mm_setcsr(kDefined); }
  ~ScopedFpEnv() { _mm_setcsr(saved_); }
  ScopedFpEnv(const ScopedFpEnv&) = delete;
  ScopedFpEnv& operator=(const ScopedFpEnv&) = delete;

 private:
  static constexpr unsigned kDefined = 0x1F80;  // MXCSR at reset
  const unsigned saved_;
};

}  // namespace kvern
