#include "compute/double_functions.h"

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace kvern::compute {
namespace {

// Adding 1.5 · 2⁵² rounds |x| < 2⁵¹ to an integer, ties to even, and leaves it in the low bits.
constexpr double kRounder = 6755399441055744.0;

// ln 2 in 32 bits, so that a multiple below 2²¹ is exact, and the rest.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// Horner's rule; coefficients from the highest power down to the constant.
template <int kCount>
double Polynomial(double x, const double (&coefficients)[kCount]) {
  double sum = coefficients[0];
  for (int i = 1; i < kCount; ++i) sum = sum * x + coefficients[i];
  return sum;
}

// (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in z = r², |r| ≤ π/4: degree 5 each, minimax errors
// 2⁻⁵⁸ and 2⁻⁶⁴.
constexpr double kSin[] = {0x1.5d8fa25e27dfbp-33,  -0x1.ae5e59f2afbbap-26, 0x1.71de35670e35ep-19,
                           -0x1.a01a019bfd12bp-13, 0x1.111111110f7cap-7,   -0x1.5555555555548p-3};
constexpr double kCos[] = {-0x1.8fa46637fb070p-37, 0x1.1ee9d75327528p-29,  -0x1.27e4f7ea387e9p-22,
                           0x1.a01a019c83924p-16,  -0x1.6c16c16c14f8ap-10, 0x1.555555555554bp-5};

// (e^r - 1 - r) / r², |r| ≤ ln 2 / 2: degree 10, minimax error 2⁻⁶⁴.
constexpr double kExp[] = {0x1.1e3d2d3f85942p-29,
                           0x1.af6be7e556d0ep-26,
                           0x1.27e5b44617168p-22,
                           0x1.71ddf020cd816p-19,
                           0x1.a01a01368f9b3p-16,
                           0x1.a01a01b37e382p-13,
                           0x1.6c16c16c3048cp-10,
                           0x1.111111110ec5dp-7,
                           0x1.5555555555503p-5,
                           0x1.555555555555bp-3,
                           0.5};

// (ln((1 + s)/(1 - s)) / s - 2) / s² in z = s², |s| ≤ 0.1716: degree 7, minimax error 2⁻⁶⁶.
constexpr double kLog[] = {0x1.0f61a6ba56b93p-3, 0x1.0f5cf4ecff986p-3, 0x1.3b20a969e4ed6p-3,
                           0x1.745cde4388dfap-3, 0x1.c71c7258cc2e4p-3, 0x1.249249242b704p-2,
                           0x1.9999999999dfcp-2, 0x1.5555555555555p-1};

// π/2 in three parts of 30 bits, so that a multiple below 2²³ is exact, and the rest.
constexpr double kHalfPi[] = {0x1.921fb54p+0, 0x1.10b46118p-30, 0x1.313198ap-61,
                              0x1.701b839a25205p-92};

}  // namespace

double ExpDouble(double x) {
  const double shifted = x * 0x1.71547652b82fep+0 + kRounder;
  const double n = shifted - kRounder;
  const double low = n * kLn2Low;
  const double high = x - n * kLn2High;
  const double r = high - low;
  // 1 + r rounds; what the rounding of r lost is put back with the small terms.
  const double lost = (high - r) - low;
  const double p = 1.0 + (r + (r * r * Polynomial(r, kExp) + lost));
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) +
                               (std::bit_cast<uint64_t>(shifted) << 52));
}

double LogDouble(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const uint64_t offset = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  const auto e = static_cast<double>(static_cast<int64_t>(offset) >> 52);
  const double m = std::bit_cast<double>((offset & 0xFFFFFFFFFFFFF) + kSqrtHalf);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  // 2s = f - s·f exactly, so the large term f carries no rounding error.
  const double tail = s * (z * Polynomial(z, kLog) - f);
  return e * kLn2High + (f + (tail + e * kLn2Low));
}

SinCos SinCosDouble(double angle) {
  CHECK(angle >= 0 && angle <= kMaxAngle);
  const double shifted = angle * 0x1.45f306dc9c883p-1 + kRounder;
  const double n = shifted - kRounder;
  const double second = n * kHalfPi[1], third = n * kHalfPi[2];
  const double a = angle - n * kHalfPi[0];
  const double b = a - second;
  const double r = b - third;
  // r + rest is the angle in [-π/4, π/4]: what the roundings of b and r lost, and the last part.
  const double rest = ((a - b) - second) + (((b - r) - third) - n * kHalfPi[3]);

  const double z = r * r;
  const double sin = r + (r * z * Polynomial(z, kSin) + rest * (1.0 - 0.5 * z));
  const double half = 0.5 * z;
  const double one = 1.0 - half;
  const double cos = one + (((1.0 - one) - half) + (z * z * Polynomial(z, kCos) - r * rest));
  switch (std::bit_cast<uint64_t>(shifted) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace kvern::compute
