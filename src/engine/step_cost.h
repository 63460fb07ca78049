// StepCost: how long a step will take, learned from those that were. Aim: by when to stop.
//
// A step's work is the sum over its slices of WorkOf(). Time is modelled as base + rate × work, a
// straight line fitted to recent steps: a fixed part (weights are read once) and one that grows
// with tokens and the history that they attend to. A margin above it follows how often steps take
// longer.
//
// Not thread-safe. Deterministic: a function of what it was told.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvern::engine {

// Of `num_tokens` tokens from `position` on, in the work of one token without a history.
inline double WorkOf(size_t position, size_t num_tokens) {
  // How long a history costs a token as much as everything else: of small models, in which it
  // weighs most. What it should have been is in the fitted rate.
  constexpr double kHistory = 1024;
  // Reading the history once costs about as much as attending to it with so many tokens.
  constexpr double kReadTokens = 0.5;
  const auto tokens = static_cast<double>(num_tokens), history = static_cast<double>(position);
  return tokens * (1 + (history + tokens / 2) / kHistory) + kReadTokens * history / kHistory;
}

class StepCost {
 public:
  void Told(double work, int64_t time_us);

  bool is_known() const { return weight_ > 0; }
  double base_us() const { return base_us_; }
  double rate_us() const { return rate_us_; }  // of one unit of work

  double ExpectedUs(double work) const;  // at least 1
  // What 99 % of the steps of so much work stay below.
  double BoundUs(double work) const { return ExpectedUs(work) * margin_; }
  // The work of a step that stays below `limit_us`; 0 where none does. REQUIRES: is_known().
  double WorkWithin(double limit_us) const;

  // How many tokens from `position` on a step of `work` may take up and stay below `limit_us`, at
  // most `most`. `most` where nothing is known.
  size_t TokensWithin(double limit_us, double work, size_t position, size_t most) const;

 private:
  void AdaptMargin(bool took_longer);

  // Sums over recent steps, older and longer ones weighing less.
  double weight_ = 0, work_ = 0, time_ = 0, work_work_ = 0, work_time_ = 0;
  double margin_ = 1.2;
  double base_us_ = 0, rate_us_ = 0;
};

// The share of a limit after which to begin nothing more, so that few steps exceed the limit.
class Aim {
 public:
  double share() const { return share_; }
  void Told(bool took_too_long);

 private:
  double share_ = 0.9;
};

}  // namespace kvern::engine
