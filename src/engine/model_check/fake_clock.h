// FakeClock: time that stands still until it is moved.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/clock.h"

namespace kvern::engine::model_check {

class FakeClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_; }

  void Advance(int64_t by_us) {
    CHECK(by_us >= 0);
    now_us_ += by_us;
  }

 private:
  int64_t now_us_ = 1'000'000;
};

}  // namespace kvern::engine::model_check
