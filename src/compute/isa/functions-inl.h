// exp, log, tanh and their kin over the 16-lane vector (rule N8): fixed polynomials, the same bits
// on every CPU.
//
// Included after a vec.h. Each comment gives the form, the degree, the error of the polynomial
// itself (minimax, before rounding) and the largest error measured against double precision, in
// units in the last place. functions_test.cc holds these bounds.
#pragma once

#include <cstdint>

namespace {

// Adding 1.5 · 2²³ rounds |x| < 2²² to an integer, ties to even, and leaves that integer in the low
// bits of the sum.
constexpr float kRounder = 12582912.0f;

KVERN_INLINE F32x16 Negate(F32x16 x) { return Mul(x, Set1(-1.0f)); }

// A polynomial by Horner's rule, one fused multiply-add per coefficient; the last is the constant.
KVERN_INLINE F32x16 Polynomial(F32x16, F32x16 high) { return high; }
template <typename... Lower>
KVERN_INLINE F32x16 Polynomial(F32x16 x, F32x16 high, float next, Lower... lower) {
  return Polynomial(x, Fma(high, x, Set1(next)), lower...);
}
template <typename... Lower>
KVERN_INLINE F32x16 Polynomial(F32x16 x, float high, Lower... lower) {
  return Polynomial(x, Set1(high), lower...);
}

// 2^x for x ≤ 0, and 0 where x < -115 or x is NaN. 2^(n + r) with n = rne(x), |r| ≤ 1/2:
// 1 + r·P(r), degree 6 in all, error 2^-28.5; measured 0.83 ulp. Exactly 1 at 0. With the
// cut no product with a stored value (at least 2⁻³⁰, rule N6) rounds to 0.
KVERN_INLINE F32x16 Exp2NonPositive(F32x16 x) {
  const F32x16 shifted = Add(x, Set1(kRounder));
  const F32x16 r = Sub(x, Sub(shifted, Set1(kRounder)));
  const F32x16 p = Polynomial(r, 0x1.470b38p-13f, 0x1.5f7226p-10f, 0x1.3b272p-7f, 0x1.c6ae28p-5f,
                              0x1.ebfbe2p-3f, 0x1.62e432p-1f, 1.0f);
  const F32x16 scaled = FromBits(AddInt(Bits(p), ShiftLeft<23>(Bits(shifted))));
  return SelectGreaterEqual(x, Set1(-115.0f), scaled, Set1(0.0f));
}

// 2^n for an integer n in [-126, 127] that `shifted` = n + kRounder holds.
KVERN_INLINE F32x16 PowerOfTwo(F32x16 shifted) {
  return FromBits(AddInt(ShiftLeft<23>(Bits(shifted)), Set1Int(127 << 23)));
}

// e^x. n = rne(x · log2 e), r = x - n·ln 2 in two steps, 1 + r·P(r), degree 6 in all, error
// 2^-28.5; then times 2^n in two factors, so that the result rounds once also where it is
// subnormal, and overflows to infinity. Measured 0.89 ulp. NaN gives NaN.
KVERN_INLINE F32x16 Exp(F32x16 x) {
  const F32x16 largest = Set1(89.0f);
  x = SelectGreaterEqual(x, largest, largest, x);
  x = Max(Set1(-104.0f), x);  // Max gives its second argument where that is NaN
  const F32x16 n = Sub(Fma(x, Set1(0x1.715476p+0f), Set1(kRounder)), Set1(kRounder));
  F32x16 r = Fma(n, Set1(-0x1.62e4p-1f), x);  // ln 2 in 15 bits: n · it is exact
  r = Fma(n, Set1(-0x1.7f7d1cp-20f), r);
  const F32x16 p = Polynomial(r, 0x1.709ce2p-10f, 0x1.128e76p-7f, 0x1.55518p-5f, 0x1.5553f8p-3f,
                              0.5f, 1.0f, 1.0f);
  const F32x16 half = Fma(n, Set1(0.5f), Set1(kRounder));
  const F32x16 rest = Add(Sub(n, Sub(half, Set1(kRounder))), Set1(kRounder));
  return Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(rest));
}

// ln x. x = m · 2^e with m in [2/3, 4/3), f = m - 1: f - f²/2 + f³·P(f), P of degree 8, error
// 2^-30; plus e·ln 2 in two parts. Measured 0.83 ulp. -inf at 0, NaN below.
KVERN_INLINE F32x16 Log(F32x16 x) {
  const F32x16 zero = Set1(0.0f), smallest_normal = Set1(0x1p-126f);
  const F32x16 normal = SelectGreaterEqual(x, smallest_normal, x, Mul(x, Set1(0x1p23f)));
  const F32x16 offset = SelectGreaterEqual(x, smallest_normal, zero, Set1(-23.0f));

  constexpr int32_t kTwoThirds = 0x3F2AAAAB;
  const I32x16 from_two_thirds = AddInt(Bits(normal), Set1Int(-kTwoThirds));
  const F32x16 e = Add(ToFloat(ShiftRightSigned<23>(from_two_thirds)), offset);
  const I32x16 m = AddInt(AndInt(from_two_thirds, Set1Int(0x7FFFFF)), Set1Int(kTwoThirds));
  const F32x16 f = Sub(FromBits(m), Set1(1.0f));

  const F32x16 p =
      Polynomial(f, 0x1.ebcff8p-4f, -0x1.071122p-3f, 0x1.b87e6p-4f, -0x1.f389fcp-4f, 0x1.24f48cp-3f,
                 -0x1.559908p-3f, 0x1.99977ep-3f, -0x1.ffff0ep-3f, 0x1.555556p-2f);
  const F32x16 square = Mul(f, f);
  F32x16 tail = Fma(square, Set1(-0.5f), Mul(Mul(square, f), p));
  tail = Fma(e, Set1(0x1.7f7d1cp-20f), tail);
  const F32x16 log = Fma(e, Set1(0x1.62e4p-1f), Add(f, tail));

  const F32x16 not_positive =
      SelectGreaterEqual(x, zero, Set1(-__builtin_inff()), Set1(__builtin_nanf("")));
  const F32x16 result = SelectGreaterEqual(zero, x, not_positive, log);
  return SelectGreaterEqual(Set1(0x1.fffffep127f), x, result, x);  // +inf and NaN are their own
}

// tanh x, by a = |x| and the sign put back: a + a³·P(a²) below 0.625, P of degree 4, error 2^-27.8;
// 1 - 2 / (e^2a + 1) above. Measured 1.27 ulp.
KVERN_INLINE F32x16 Tanh(F32x16 x) {
  const F32x16 a = FromBits(AndInt(Bits(x), Set1Int(0x7FFFFFFF)));
  const F32x16 square = Mul(a, a);
  const F32x16 p = Polynomial(square, -0x1.75e1c2p-8f, 0x1.522698p-6f, -0x1.b83c5ap-5f,
                              0x1.110726p-3f, -0x1.555532p-2f);
  const F32x16 small = Fma(Mul(a, square), p, a);
  const F32x16 one = Set1(1.0f);
  const F32x16 large = Sub(one, Div(Set1(2.0f), Add(Exp(Add(a, a)), one)));
  const F32x16 positive = SelectGreaterEqual(a, Set1(0.625f), large, small);
  return FromBits(AddInt(Bits(positive), AndInt(Bits(x), Set1Int(INT32_MIN))));
}

// x / (1 + e^-x). Measured 2.27 ulp for x ≥ -87; below, where the value is under 2⁻¹¹⁸, it may be
// -0. NaN at -inf.
KVERN_INLINE F32x16 Silu(F32x16 x) { return Div(x, Add(Exp(Negate(x)), Set1(1.0f))); }

// x · (1 + tanh u) / 2 with u = √(2/π)·(x + 0.044715·x³), computed as x / (1 + e^-2u).
// Measured 1.6 ulp for x ≥ 0, 1.5e-7 absolute below. NaN at -inf.
KVERN_INLINE F32x16 GeluTanh(F32x16 x) {
  const F32x16 linear = Set1(-0x1.988454p+0f);  // -2·√(2/π)
  const F32x16 cubic = Set1(-0x1.2444f2p-4f);   // -2·√(2/π)·0.044715
  const F32x16 minus_2u = Mul(x, Fma(Mul(x, x), cubic, linear));
  return Div(x, Add(Exp(minus_2u), Set1(1.0f)));
}

}  // namespace
