#include "compute/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/fp_env.h"
#include "compute/double_functions.h"

namespace kvern::compute {
namespace {

bool IsPositive(double x) { return std::isfinite(x) && x > 0; }

Status CheckSpec(const RopeSpec& spec) {
  constexpr auto kBad = ErrorCode::kInvalidArgument;
  if (spec.dims == 0 || spec.dims % 2 != 0) {
    return Errorf(kBad, "dims: {} is not a positive even number", spec.dims);
  }
  // LogDouble and ExpDouble take normal numbers and powers that double can hold.
  if (!(spec.base >= 1e-30 && spec.base <= 1e30)) {
    return Errorf(kBad, "base: {} is not in [1e-30, 1e30]", spec.base);
  }
  if (!IsPositive(spec.linear_factor)) {
    return Errorf(kBad, "linear_factor: {} is not positive", spec.linear_factor);
  }
  if (!spec.factors.empty() && spec.factors.size() != spec.dims / 2) {
    return Errorf(kBad, "factors: {} values for {} pairs", spec.factors.size(), spec.dims / 2);
  }
  for (size_t i = 0; i < spec.factors.size(); ++i) {
    if (!IsPositive(spec.factors[i])) {
      return Errorf(kBad, "factors: value {} is {}, not positive", i, spec.factors[i]);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<double>> RopeFrequencies(const RopeSpec& spec) {
  KVERN_RETURN_IF_ERROR(CheckSpec(spec));
  const ScopedFpEnv fp_env;
  const double log_base = LogDouble(spec.base);
  std::vector<double> frequencies(spec.dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = -(static_cast<double>(2 * i) / spec.dims) * log_base;
    double frequency = ExpDouble(exponent);
    if (!spec.factors.empty()) frequency /= static_cast<double>(spec.factors[i]);
    frequencies[i] = frequency / spec.linear_factor;
  }
  return frequencies;
}

Result<RopeTable> RopeTable::Create(const RopeSpec& spec, uint32_t num_positions) {
  KVERN_ASSIGN_OR_RETURN(const std::vector<double> frequencies, RopeFrequencies(spec));
  const double fastest = *std::max_element(frequencies.begin(), frequencies.end());
  if (!(num_positions * fastest <= kMaxAngle)) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "num_positions: {} at up to {} radians each pass the limit of {} radians; use a "
                  "smaller context",
                  num_positions, fastest, kMaxAngle);
  }
  RopeTable table;
  table.num_pairs_ = spec.dims / 2;
  table.num_positions_ = num_positions;
  const size_t num_bytes = size_t{num_positions} * spec.dims * sizeof(float);
  KVERN_ASSIGN_OR_RETURN(table.values_, AlignedBuffer::Create(num_bytes));

  const ScopedFpEnv fp_env;
  auto* out = table.values_.as<float>();
  for (uint32_t position = 0; position < num_positions; ++position, out += spec.dims) {
    for (uint32_t i = 0; i < table.num_pairs_; ++i) {
      const SinCos turn = SinCosDouble(position * frequencies[i]);
      out[i] = static_cast<float>(turn.cos);
      out[table.num_pairs_ + i] = static_cast<float>(turn.sin);
    }
  }
  return table;
}

}  // namespace kvern::compute
