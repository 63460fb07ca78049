#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvern::server {
namespace {

using testing::HasSubstr;

TEST(Metrics, TellWhatHappened) {
  Metrics metrics;
  Report report{.prompt_tokens = 100, .completion_tokens = 20};
  report.prompt.ram = 60;
  report.queue_us = 500'000;
  report.ttft_us = 1'500'000;
  report.total_us = 3'500'000;
  metrics.OnEnd({}, report, {});
  metrics.OnEnd({}, {.error = Error{ErrorCode::kIo, "x"}, .prompt_tokens = 7}, {});
  metrics.OnGap(20'000);
  EngineStats stats{.running = 3, .waiting = 1, .waiting_prefix = 2, .schedule_us = 1'500'000};
  stats.kv.budget_bytes = 1000;
  stats.kv.bytes = {.active = 250, .cached = 500, .reserved = 50, .free = 200};
  stats.kv.prompts.miss[static_cast<size_t>(kv::MissReason::kEvicted)] = 9;
  const std::string text = metrics.ToText(stats, "m\"1", 8);
  for (const char* const line : {
           "llamacpp:prompt_tokens_total{model_name=\"m\\\"1\"} 47\n",
           "llamacpp:prompt_seconds_total{model_name=\"m\\\"1\"} 1\n",
           "llamacpp:tokens_predicted_seconds_total{model_name=\"m\\\"1\"} 2\n",
           "llamacpp:requests_deferred{model_name=\"m\\\"1\"} 3\n",
           "vllm:kv_cache_usage_perc{model_name=\"m\\\"1\"} 0.25\n",
           "kvern_kv_bytes{model_name=\"m\\\"1\",state=\"cached\"} 500\n",
           "kvern_prompt_misses_total{model_name=\"m\\\"1\",reason=\"evicted\"} 9\n",
           "kvern_step_seconds_total{model_name=\"m\\\"1\",part=\"schedule\"} 1.5\n",
           "vllm:time_to_first_token_seconds_bucket{model_name=\"m\\\"1\",le=\"2.5\"} 1\n",
           "vllm:inter_token_latency_seconds_count{model_name=\"m\\\"1\"} 1\n",
           "# TYPE kvern_kv_bytes gauge\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace kvern::server
