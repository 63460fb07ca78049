#include "server/auth/rate_limiter.h"

#include <algorithm>
#include <cmath>

namespace kvern::server {

std::optional<int64_t> RateLimiter::Take(const std::string& key, double per_minute) {
  const double per_us = per_minute / 60e6;
  const double size = std::max(1.0, per_us * static_cast<double>(kBurstUs));
  const std::lock_guard lock(mutex_);
  const int64_t now_us = clock_.now_us();
  if (buckets_.size() >= kMaxKeys) {
    // Who has not asked for so long has a full bucket, as who is new.
    std::erase_if(buckets_,
                  [&](const auto& entry) { return now_us - entry.second.time_us > 60 * kBurstUs; });
  }
  Bucket& bucket =
      buckets_.try_emplace(key, Bucket{.requests = size, .time_us = now_us}).first->second;
  bucket.requests =
      std::min(size, bucket.requests + per_us * static_cast<double>(now_us - bucket.time_us));
  bucket.time_us = now_us;
  if (bucket.requests >= 1) {
    bucket.requests -= 1;
    return std::nullopt;
  }
  return std::llround((1 - bucket.requests) / per_us);
}

}  // namespace kvern::server
