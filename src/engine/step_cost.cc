#include "engine/step_cost.h"

#include <algorithm>

namespace kvern::engine {
namespace {

struct Settling {
  double step;
  double share;  // of the events that may be
  double least, most;
};

// A margin goes up where an event was, and down by its share of that where it was not: so it
// settles where events have that share, however they are spread, and no single one counts for much.
double Settled(double margin, bool was, const Settling& to) {
  return std::clamp(margin + to.step * (was ? 1 - to.share : -to.share), to.least, to.most);
}

}  // namespace

// Errors count in proportion to the time: a step of seconds says little about one of milliseconds.
void StepCost::Told(double work, int64_t time_us) {
  constexpr double kMemory = 0.98;            // about 50 steps
  constexpr double kDistinctVariance = 0.02;  // of squared work: enough to see a slope
  constexpr double kLeastShare = 0.25;        // of the time that grows with the work
  const auto time = static_cast<double>(std::max<int64_t>(time_us, 1));
  if (is_known()) AdaptMargin(time > BoundUs(work));
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

double StepCost::ExpectedUs(double work) const { return std::max(base_us_ + rate_us_ * work, 1.0); }

void StepCost::AdaptMargin(bool took_longer) {
  margin_ = Settled(margin_, took_longer, {.step = 0.08, .share = 0.01, .least = 1, .most = 2.5});
}

void Aim::Told(bool took_too_long) {
  const double margin = Settled(1 - share_, took_too_long,
                                {.step = 0.03, .share = 0.005, .least = 0.03, .most = 0.5});
  share_ = 1 - margin;
}

double StepCost::WorkWithin(double limit_us) const {
  return std::max(0.0, (limit_us / margin_ - base_us_) / rate_us_);
}

size_t StepCost::TokensWithin(double limit_us, double work, size_t position, size_t most) const {
  if (!is_known()) return most;
  const double room = WorkWithin(limit_us) - work;
  size_t low = 0, high = most;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (WorkOf(position, middle) <= room) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace kvern::engine
