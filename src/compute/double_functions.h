// exp, log, sine and cosine in double by own polynomials (rule N8), for tables made at load.
//
// Plain IEEE operations in the written order, no fused ones, so every machine gives the same bits.
// Measured against long double, in units in the last place: exp 0.83, log 0.78, sine and cosine
// 0.80, also near their zeros.
// Pure functions.
#pragma once

namespace kvern::compute {

// e^x, |x| ≤ 700.
double ExpDouble(double x);

// ln x, for a positive normal x.
double LogDouble(double x);

struct SinCos {
  double sin;
  double cos;
};

// 0 ≤ angle ≤ kMaxAngle, in radians.
inline constexpr double kMaxAngle = 4194304.0;  // 2²²
SinCos SinCosDouble(double angle);

}  // namespace kvern::compute
