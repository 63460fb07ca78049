#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace kvern::engine {

void StepCost::Told(double work, int64_t time_us) {
  constexpr double kMemory = 0.96;            // about 25 steps
  constexpr double kDistinctVariance = 0.01;  // of squared work: enough to see a slope
  const auto time = static_cast<double>(time_us);
  if (is_known()) {
    const double error = time - (base_us_ + rate_us_ * work);
    variance_ = kMemory * variance_ + (1 - kMemory) * error * error;
  }
  weight_ = kMemory * weight_ + 1;
  work_ = kMemory * work_ + work;
  time_ = kMemory * time_ + time;
  work_work_ = kMemory * work_work_ + work * work;
  work_time_ = kMemory * work_time_ + work * time;

  const double mean_work = work_ / weight_, mean_time = time_ / weight_;
  const double variance = work_work_ / weight_ - mean_work * mean_work;
  if (variance > kDistinctVariance * mean_work * mean_work) {
    rate_us_ = (work_time_ / weight_ - mean_work * mean_time) / variance;
  } else if (rate_us_ == 0) {
    rate_us_ = mean_time / mean_work;  // too much rather than too little
  }
  rate_us_ = std::clamp(rate_us_, 0.0, mean_time / mean_work);
  base_us_ = mean_time - rate_us_ * mean_work;
}

double StepCost::BoundUs(double work) const {
  return base_us_ + rate_us_ * work + 2.5 * std::sqrt(variance_);  // 99 % of them, if normal
}

size_t StepCost::TokensWithin(double limit_us, double work, size_t position, size_t most) const {
  if (!is_known()) return most;
  size_t low = 0, high = most;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (BoundUs(work + WorkOf(position, middle)) <= limit_us) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace kvern::engine
