#include "cli/serve_scrape.h"

#include <gtest/gtest.h>

#include "server/metrics.h"

namespace kvern::cli {
namespace {

// What the server writes is read again.
TEST(ParseMetrics, ReadsWhatTheServerSays) {
  EngineStats stats{.running = 3, .waiting = 4, .waiting_prefix = 2, .requests = 9};
  stats.refused = 1;
  stats.failed = 2;
  stats.cancelled = 3;
  stats.steps = 300;
  stats.steps_kv_bound = 40;
  stats.steps_queue_bound = 50;
  stats.decoded_tokens = 1234;
  stats.drafted_tokens = 6;
  stats.accepted_tokens = 5;
  stats.preemptions = 7;
  stats.self_checks = 8;
  stats.schedule_us = 1'234'567;
  stats.execute_us = 89'000'000;
  stats.commit_us = 42;
  stats.kv.budget_bytes = 1'000'000'000'000;
  stats.kv.index_bytes = 77;
  stats.kv.bytes = {.active = 250, .cached = 500, .reserved = 50, .free = 999'999'999'200};
  stats.kv.prompts = {.ram = 10, .tier = 11, .in_flight = 12, .partial = 13};
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) stats.kv.prompts.miss[i] = 100 + i;
  server::Metrics metrics;
  Report report{.prompt_tokens = 100, .completion_tokens = 20};
  report.prompt.ram = 60;
  metrics.OnEnd({}, report, {});
  const auto read = ParseMetrics(
      metrics.ToText(stats, "a \"model\", {1}", 8, server::MetricsReader::kAdministrator));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->running, stats.running);
  EXPECT_EQ(read->waiting, stats.waiting);
  EXPECT_EQ(read->waiting_prefix, stats.waiting_prefix);
  EXPECT_EQ(read->requests, stats.requests);
  EXPECT_EQ(read->refused, stats.refused);
  EXPECT_EQ(read->failed, stats.failed);
  EXPECT_EQ(read->cancelled, stats.cancelled);
  EXPECT_EQ(read->steps, stats.steps);
  EXPECT_EQ(read->steps_kv_bound, stats.steps_kv_bound);
  EXPECT_EQ(read->steps_queue_bound, stats.steps_queue_bound);
  EXPECT_EQ(read->decoded_tokens, stats.decoded_tokens);
  EXPECT_EQ(read->prefilled_tokens, 40u);
  EXPECT_EQ(read->drafted_tokens, stats.drafted_tokens);
  EXPECT_EQ(read->accepted_tokens, stats.accepted_tokens);
  EXPECT_EQ(read->preemptions, stats.preemptions);
  EXPECT_EQ(read->self_checks, stats.self_checks);
  EXPECT_EQ(read->schedule_us, stats.schedule_us);
  EXPECT_EQ(read->execute_us, stats.execute_us);
  EXPECT_EQ(read->commit_us, stats.commit_us);
  EXPECT_EQ(read->kv.budget_bytes, stats.kv.budget_bytes);
  EXPECT_EQ(read->kv.index_bytes, stats.kv.index_bytes);
  EXPECT_EQ(read->kv.bytes.active, 250u);
  EXPECT_EQ(read->kv.bytes.free, 999'999'999'200u);
  EXPECT_EQ(read->kv.prompts.hit(), 46u);
  EXPECT_EQ(read->kv.prompts.miss, stats.kv.prompts.miss);
}

TEST(ParseMetrics, OthersTellNothing) {
  EXPECT_FALSE(ParseMetrics(""));
  EXPECT_FALSE(ParseMetrics("# HELP x y\nllamacpp:n_decode_total 5\n"));
}

TEST(ParseMetrics, TakesNoHarmFromAnyText) {
  const auto read = ParseMetrics(
      "kvern_kv_budget_bytes -5\nkvern_kv_bytes{state=\"active\nkvern_kv_bytes{state=\"free\"} "
      "NaN\nkvern_kv_index_bytes 1e300\n \n{} 1\nkvern_self_checks_total{a=\"b\\\" 3\nx{=\"} 1");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kv.budget_bytes, 0u);
  EXPECT_EQ(read->kv.bytes.free, 0u);
  EXPECT_LT(read->kv.index_bytes, size_t{1} << 60);
}

}  // namespace
}  // namespace kvern::cli
