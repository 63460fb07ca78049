// Progress: one line on a terminal while something takes longer than a second.
//
//   Loading model  [=========>          ] 47 %
//
// Silent where standard error is not a terminal. The line is gone when the object is. One thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace kvern::cli {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `fraction` of the work is done, in [0, 1]. Cheap: draws at most ten times a second. `detail` is
  // shown behind the bar, as far as the terminal is wide.
  void Update(double fraction, std::string_view detail = {});

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const bool is_terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  bool is_shown_ = false;
};

// What Update draws, without control characters.
std::string ProgressLine(const std::string& what, double fraction, std::string_view detail = {});

}  // namespace kvern::cli
