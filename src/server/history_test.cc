#include "server/history.h"

#include <gtest/gtest.h>

#include "engine/model_check/fake_clock.h"

namespace kvern::server {
namespace {

using engine::model_check::FakeClock;

EngineStats StatsOf(uint64_t steps, size_t running) {
  EngineStats stats{.running = running, .waiting = 2, .steps = steps, .steps_kv_bound = steps / 2};
  stats.decoded_tokens = 10 * steps;
  stats.kv.prompts.ram = steps;
  stats.kv.bytes = {.active = 100, .cached = 0, .reserved = 20, .free = 0};
  return stats;
}

TEST(History, APointIsWhatHappenedSinceTheLast) {
  FakeClock clock;
  History history(clock);
  EXPECT_EQ(history.Last(), std::nullopt);
  EXPECT_EQ(history.LoadOfLast(3), std::nullopt);
  for (const int64_t us : {30'000, 10'000, 20'000}) history.OnFirstToken(us);
  clock.Advance(2'000'000 - clock.now_us());
  history.AddPoint(StatsOf(10, 4));
  clock.Advance(5'000'000);
  history.OnGap(5'000);
  history.AddPoint(StatsOf(30, 6));
  const auto points = history.Points();
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].seconds, 2);
  EXPECT_EQ(points[0].ttft->p50_ms, 20);
  EXPECT_EQ(points[0].ttft->p99_ms, 30);
  EXPECT_EQ(points[0].gap, std::nullopt);
  EXPECT_EQ(points[1].seconds, 5);
  EXPECT_EQ(points[1].load.engine.steps, 20u);
  EXPECT_EQ(points[1].load.engine.kv.prompts.ram, 20u);
  EXPECT_EQ(points[1].load.peak_wanted_bytes, 160u);  // 120 bytes of 6, for 8
  EXPECT_EQ(points[1].ttft, std::nullopt);
  EXPECT_EQ(points[1].gap->p99_ms, 5);
  EXPECT_EQ(history.Points(points[0].unix_s).size(), 1u);

  const auto load = history.LoadOfLast(5);
  EXPECT_EQ(load->engine.steps, 30u);
  EXPECT_EQ(load->engine.decoded_tokens, 300u);
  EXPECT_EQ(load->engine.kv.prompts.ram, 30u);
  EXPECT_EQ(load->engine.running, 6u);
  EXPECT_EQ(load->mean_running, 10);  // tokens a step, more than the 5 that points saw
  EXPECT_EQ(load->peak_running, 6u);
}

TEST(History, ForgetsAfterAQuarterOfAnHour) {
  FakeClock clock;
  History history(clock);
  for (uint64_t i = 1; i <= History::kNumPoints + 5; ++i) history.AddPoint(StatsOf(i, 1));
  EXPECT_EQ(history.Points().size(), History::kNumPoints);
  EXPECT_EQ(history.LoadOfLast(1000)->engine.steps, History::kNumPoints);
}

}  // namespace
}  // namespace kvern::server
