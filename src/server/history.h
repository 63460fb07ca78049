// History: how a server fared in the last quarter of an hour, a point every few seconds. Any
// thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/verdict.h"
#include "server/answer_observer.h"

namespace kvern::server {

struct TimePercentiles {
  double p50_ms = 0;
  double p99_ms = 0;
};

struct HistoryPoint {
  double unix_s = 0;                         // its end
  double seconds = 0;                        // its length
  engine::Load load;                         // of that time
  std::optional<TimePercentiles> ttft = {};  // of answers that began in it; none: none did
  std::optional<TimePercentiles> gap = {};   // between chunks of answers
};

class History final : public AnswerObserver {
 public:
  static constexpr int64_t kPeriodUs = 5'000'000;
  static constexpr size_t kNumPoints = 180;
  static constexpr size_t kMaxTimes = 100'000;  // of a point, that percentiles are made of

  explicit History(const Clock& clock) : clock_(clock) {}
  ~History() override;
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Asks `stats` every period from now on. `on_point` is called after each, on the
  // same thread. Once.
  void Start(std::function<EngineStats()> stats, std::function<void()> on_point);

  void OnFirstToken(int64_t ttft_us) override;
  void OnGap(int64_t gap_us) override;

  // Ends the time of one point; Start() does it every period.
  void AddPoint(const EngineStats& stats);

  // Oldest first: those that ended after `since_unix_s`.
  std::vector<HistoryPoint> Points(double since_unix_s = 0) const;
  std::optional<HistoryPoint> Last() const;  // none: there is no point yet
  // The last `count` points taken together. None: there is no point yet.
  std::optional<engine::Load> LoadOfLast(size_t count) const;

 private:
  void Run(const std::function<EngineStats()>& stats, const std::function<void()>& on_point);

  const Clock& clock_;
  mutable std::mutex mutex_;
  std::deque<HistoryPoint> points_;
  std::vector<int64_t> ttft_us_, gap_us_;  // since the last point
  EngineStats last_stats_;                 // at its end
  int64_t last_us_ = 0;
  std::condition_variable is_over_changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace kvern::server
