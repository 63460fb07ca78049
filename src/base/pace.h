// Pace: asked by long work, before each part of it, whether there is time for that.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace kvern {

class Pace {
 public:
  virtual ~Pace() = default;

  // Whether there is time for the first part.
  virtual bool Begin() = 0;
  // After a part: whether there is time for the next one.
  virtual bool HasTime() = 0;
};

// Until a moment: there is time for what ends by then, if it takes as long as those before it.
class PaceUntil final : public Pace {
 public:
  // What the first part may take is given; none: there is time for it whatever it takes. `clock`
  // must outlive it.
  PaceUntil(const Clock* clock, int64_t until_us, std::optional<int64_t> first_us)
      : clock_(*clock), until_us_(until_us), first_us_(first_us) {}

  bool Begin() override {
    begin_us_ = now_us_ = clock_.now_us();
    num_parts_ = 0;
    return !first_us_ || begin_us_ + *first_us_ <= until_us_;
  }

  bool HasTime() override {
    now_us_ = clock_.now_us();
    ++num_parts_;
    return now_us_ + *part_us() <= until_us_;
  }

  // Of a part, in the mean of those that it was asked after.
  std::optional<int64_t> part_us() const {
    if (num_parts_ == 0) return std::nullopt;
    return (now_us_ - begin_us_) / num_parts_;
  }

 private:
  const Clock& clock_;
  const int64_t until_us_;
  const std::optional<int64_t> first_us_;
  int64_t begin_us_ = 0, now_us_ = 0;
  int64_t num_parts_ = 0;
};

}  // namespace kvern
