#include "server/history.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kvern::server {
namespace {

// By nearest rank: each is a time that was measured.
std::optional<TimePercentiles> PercentilesOf(std::vector<int64_t> times_us) {
  if (times_us.empty()) return std::nullopt;
  std::ranges::sort(times_us);
  const auto rank = [&](size_t percent) {
    const size_t index = (times_us.size() * percent + 99) / 100;
    return static_cast<double>(times_us[std::max<size_t>(index, 1) - 1]) / 1e3;
  };
  return TimePercentiles{.p50_ms = rank(50), .p99_ms = rank(99)};
}

// For as many as these: the engine's thread adds them, and is not to wait for memory.
std::vector<int64_t> RoomFor(const std::vector<int64_t>& times_us) {
  std::vector<int64_t> room;
  room.reserve(times_us.size() + times_us.size() / 4);
  return room;
}

void Add(const kv::PromptSplit& split, kv::PromptSplit& sum) {
  sum.ram += split.ram;
  sum.tier += split.tier;
  sum.in_flight += split.in_flight;
  sum.partial += split.partial;
  for (size_t i = 0; i < sum.miss.size(); ++i) sum.miss[i] += split.miss[i];
}

// Counters that the verdict and the page read; what is now is that of `later`.
void Add(const engine::Load& later, engine::Load& sum) {
  EngineStats stats = later.engine;
  for (uint64_t EngineStats::*const counter :
       {&EngineStats::requests, &EngineStats::refused, &EngineStats::finished,
        &EngineStats::cancelled, &EngineStats::failed, &EngineStats::steps,
        &EngineStats::steps_kv_bound, &EngineStats::steps_queue_bound,
        &EngineStats::prefilled_tokens, &EngineStats::decoded_tokens, &EngineStats::drafted_tokens,
        &EngineStats::accepted_tokens, &EngineStats::preemptions}) {
    stats.*counter += sum.engine.*counter;
  }
  for (int64_t EngineStats::*const time :
       {&EngineStats::kv_bound_us, &EngineStats::queue_bound_us, &EngineStats::compute_bound_us,
        &EngineStats::schedule_us, &EngineStats::execute_us, &EngineStats::commit_us}) {
    stats.*time += sum.engine.*time;
  }
  Add(sum.engine.kv.prompts, stats.kv.prompts);
  Add(sum.engine.kv.resumes, stats.kv.resumes);
  sum.engine = stats;
  sum.peak_running = std::max(sum.peak_running, later.peak_running);
  sum.peak_wanted_bytes = std::max(sum.peak_wanted_bytes, later.peak_wanted_bytes);
}

}  // namespace

History::~History() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  is_over_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void History::Start(std::function<EngineStats()> stats, std::function<void()> on_point) {
  {
    const std::lock_guard lock(mutex_);
    last_stats_ = stats();
    last_us_ = clock_.now_us();
  }
  thread_ = std::thread(
      [this, stats = std::move(stats), on_point = std::move(on_point)] { Run(stats, on_point); });
}

void History::Run(const std::function<EngineStats()>& stats,
                  const std::function<void()>& on_point) {
  std::unique_lock lock(mutex_);
  while (!is_over_changed_.wait_for(lock, std::chrono::microseconds(kPeriodUs),
                                    [this] { return is_over_; })) {
    lock.unlock();
    AddPoint(stats());
    if (on_point) on_point();
    lock.lock();
  }
}

void History::OnFirstToken(int64_t ttft_us) {
  const std::lock_guard lock(mutex_);
  if (ttft_us_.size() < kMaxTimes) ttft_us_.push_back(ttft_us);
}

void History::OnGap(int64_t gap_us) {
  const std::lock_guard lock(mutex_);
  if (gap_us_.size() < kMaxTimes) gap_us_.push_back(gap_us);
}

void History::AddPoint(const EngineStats& stats) {
  const size_t waiting = stats.waiting + stats.waiting_prefix;
  const std::lock_guard lock(mutex_);
  const int64_t now_us = clock_.now_us();
  points_.push_back(
      {.unix_s = UnixNow(),
       .seconds = static_cast<double>(std::max<int64_t>(now_us - last_us_, 1)) / 1e6,
       .load = {.engine = engine::Since(last_stats_, stats),
                .mean_running = static_cast<double>(stats.running),
                .peak_running = stats.running,
                .peak_wanted_bytes = engine::WantedBytes(stats.kv.bytes, stats.running, waiting)},
       .ttft = PercentilesOf(std::exchange(ttft_us_, RoomFor(ttft_us_))),
       .gap = PercentilesOf(std::exchange(gap_us_, RoomFor(gap_us_)))});
  if (points_.size() > kNumPoints) points_.pop_front();
  last_stats_ = stats;
  last_us_ = now_us;
}

std::vector<HistoryPoint> History::Points(double since_unix_s) const {
  const std::lock_guard lock(mutex_);
  std::vector<HistoryPoint> points;
  for (const HistoryPoint& point : points_) {
    if (point.unix_s > since_unix_s) points.push_back(point);
  }
  return points;
}

std::optional<HistoryPoint> History::Last() const {
  const std::lock_guard lock(mutex_);
  return points_.empty() ? std::nullopt : std::optional(points_.back());
}

std::optional<engine::Load> History::LoadOfLast(size_t count) const {
  const std::lock_guard lock(mutex_);
  if (points_.empty()) return std::nullopt;
  count = std::min(count, points_.size());
  engine::Load sum;
  double running = 0;
  for (size_t i = points_.size() - count; i < points_.size(); ++i) {
    Add(points_[i].load, sum);
    running += points_[i].load.mean_running;
  }
  // Who came and went between two points was seen by none.
  const double steps = static_cast<double>(std::max<uint64_t>(sum.engine.steps, 1));
  sum.mean_running = std::max(running / static_cast<double>(count),
                              static_cast<double>(sum.engine.decoded_tokens) / steps);
  return sum;
}

}  // namespace kvern::server
