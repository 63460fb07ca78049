#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace kvern::engine {

// Errors count in proportion to the time: a step of seconds says little about one of milliseconds.
void StepCost::Told(double work, int64_t time_us) {
  constexpr double kMemory = 0.96;            // about 25 steps
  constexpr double kDistinctVariance = 0.01;  // of squared work: enough to see a slope
  constexpr double kMaxError = 0.5;           // a hiccup counts as no more
  constexpr double kLeastShare = 0.25;        // of the time that grows with the work
  const auto time = static_cast<double>(std::max<int64_t>(time_us, 1));
  if (is_known()) {
    const double error = std::min(std::abs(time / Expected(work) - 1), kMaxError);
    variance_ = kMemory * variance_ + (1 - kMemory) * error * error;
  }
  const double weight = 1 / (time * time);
  weight_ = kMemory * weight_ + weight;
  work_ = kMemory * work_ + weight * work;
  time_ = kMemory * time_ + weight * time;
  work_work_ = kMemory * work_work_ + weight * work * work;
  work_time_ = kMemory * work_time_ + weight * work * time;

  const double mean_work = work_ / weight_, mean_time = time_ / weight_;
  const double variance = work_work_ / weight_ - mean_work * mean_work;
  if (variance > kDistinctVariance * mean_work * mean_work) {
    rate_us_ = (work_time_ / weight_ - mean_work * mean_time) / variance;
  } else if (rate_us_ == 0) {
    rate_us_ = mean_time / mean_work;  // too much rather than too little
  }
  // Noise must not make work look free, or the next step would take all there is.
  rate_us_ = std::clamp(rate_us_, kLeastShare * mean_time / mean_work, mean_time / mean_work);
  base_us_ = mean_time - rate_us_ * mean_work;
}

double StepCost::Expected(double work) const { return std::max(base_us_ + rate_us_ * work, 1.0); }

double StepCost::BoundUs(double work) const {
  return Expected(work) * (1 + 2.5 * std::sqrt(variance_));  // 99 % of them, if normal
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
