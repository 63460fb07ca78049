// RateLimiter: how often each key may ask. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"

namespace kvern::server {

// A bucket for each key: it holds what comes in in kBurstUs, but at least one request.
class RateLimiter {
 public:
  static constexpr int64_t kBurstUs = 10'000'000;
  static constexpr size_t kMaxKeys = 65536;  // beyond it full buckets are forgotten

  explicit RateLimiter(const Clock& clock) : clock_(clock) {}

  // None: the request may go on. Else how long until one may.
  std::optional<int64_t> Take(const std::string& key, double per_minute);

 private:
  struct Bucket {
    double requests = 0;
    int64_t time_us = 0;  // when it held them
  };

  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace kvern::server
