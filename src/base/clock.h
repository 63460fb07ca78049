// Clock: the time, passed in, so that tests and simulations run on a time of their own.
//
// Safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvern {

class Clock {
 public:
  virtual ~Clock() = default;

  // Microseconds since some fixed moment; never less than before.
  virtual int64_t now_us() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_us() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }
};

// Seconds of the world's time, for people and logs: it may jump.
inline double UnixNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace kvern
