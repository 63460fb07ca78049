#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr auto kAdministrator = MetricsReader::kAdministrator;

std::string TextOf(const Metrics& metrics, const EngineStats& stats, MetricsReader reader) {
  return metrics.ToText(stats, "m", 8, reader);
}

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
  EngineStats stats{.running = 3,
                    .waiting = 1,
                    .waiting_prefix = 2,
                    .queue_bound_us = 2'500'000,
                    .schedule_us = 1'500'000};
  stats.kv.budget_bytes = 1000;
  stats.kv.bytes = {.active = 250, .cached = 500, .reserved = 50, .free = 200};
  stats.kv.prompts.miss[static_cast<size_t>(kv::MissReason::kEvicted)] = 9;
  const std::string text = metrics.ToText(stats, "m\"1", 8, kAdministrator);
  for (const char* const line : {
           "llamacpp:prompt_tokens_total 47\n",
           "llamacpp:prompt_seconds_total 1\n",
           "llamacpp:tokens_predicted_seconds_total 2\n",
           "llamacpp:requests_deferred 3\n",
           "vllm:kv_cache_usage_perc{model_name=\"m\\\"1\"} 0.25\n",
           "kvern_kv_bytes{model_name=\"m\\\"1\",state=\"cached\"} 500\n",
           "kvern_prompt_misses_total{model_name=\"m\\\"1\",reason=\"evicted\"} 9\n",
           "kvern_step_seconds_total{model_name=\"m\\\"1\",part=\"schedule\"} 1.5\n",
           "kvern_bound_seconds_total{model_name=\"m\\\"1\",bound=\"queue\"} 2.5\n",
           "vllm:time_to_first_token_seconds_bucket{model_name=\"m\\\"1\",le=\"2.5\"} 1\n",
           "vllm:inter_token_latency_seconds_count{model_name=\"m\\\"1\"} 1\n",
           "# TYPE kvern_kv_bytes gauge\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, TellHowLongBlocksLived) {
  EngineStats stats;
  kv::Histogram& age = stats.kv.lifetime_us;
  age.buckets[10] = 1;  // below 2^10 us
  age.buckets[12] = 2;
  age.buckets.back() = 4;
  age.count = 7;
  age.sum = 9'000'000;
  const std::string text = TextOf(Metrics(), stats, kAdministrator);
  const std::string name = "kvern_eviction_age_seconds";
  for (const char* const line : {
           "_bucket{model_name=\"m\",le=\"0.001024\"} 1\n",
           "_bucket{model_name=\"m\",le=\"0.004096\"} 3\n",
           "_bucket{model_name=\"m\",le=\"+Inf\"} 7\n",
           "_count{model_name=\"m\"} 7\n",
           "_sum{model_name=\"m\"} 9\n",
       }) {
    EXPECT_THAT(text, HasSubstr(name + line));
  }
}

TEST(Metrics, TellAdministratorsAloneWhoAsked) {
  Metrics metrics;
  Report report{.prompt_tokens = 10, .completion_tokens = 3};
  report.prompt.ram = 4;
  metrics.OnEnd({.tenant = "acme"}, report, {});
  metrics.OnEnd({.tenant = "acme"}, report, {});
  const std::string text = TextOf(metrics, {}, kAdministrator);
  for (const char* const line : {
           "kvern_tenant_requests_total{model_name=\"m\",tenant=\"acme\"} 2\n",
           "kvern_tenant_prompt_tokens_total{model_name=\"m\",tenant=\"acme\"} 20\n",
           "kvern_tenant_cached_tokens_total{model_name=\"m\",tenant=\"acme\"} 8\n",
           "kvern_tenant_generated_tokens_total{model_name=\"m\",tenant=\"acme\"} 6\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(TextOf(metrics, {}, MetricsReader::kAnybody), Not(HasSubstr("tenant")));
}

TEST(Metrics, CountTenantsBeyondTheCapTogether) {
  Metrics metrics;
  for (size_t i = 0; i < kMaxTenantLabels + 5; ++i) {
    metrics.OnEnd({.tenant = "tenant-" + std::to_string(i)}, {}, {});
  }
  metrics.OnEnd({.tenant = "tenant-0"}, {}, {});
  metrics.OnEnd({.tenant = "other"}, {}, {});
  const std::string text = TextOf(metrics, {}, kAdministrator);
  EXPECT_THAT(text,
              HasSubstr("kvern_tenant_requests_total{model_name=\"m\",tenant=\"other\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("requests_total{model_name=\"m\",tenant=\"tenant-0\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("tenant=\"tenant-63\""));
  EXPECT_THAT(text, Not(HasSubstr("tenant=\"tenant-64\"")));
}

// Otherwise a tenant could guess another's prompt and see in which reason the guess was counted.
TEST(Metrics, DoNotTellWhetherAnotherTenantHasAText) {
  const auto text_if = [](kv::MissReason reason, MetricsReader reader) {
    EngineStats stats;
    stats.kv.prompts.miss[static_cast<size_t>(reason)] = 32;
    return TextOf(Metrics(), stats, reader);
  };
  using enum kv::MissReason;
  for (const auto reason : {kOtherNamespace, kUnknown}) {
    EXPECT_EQ(text_if(reason, MetricsReader::kAnybody),
              text_if(kNeverSeen, MetricsReader::kAnybody));
    EXPECT_NE(text_if(reason, kAdministrator), text_if(kNeverSeen, kAdministrator));
  }
}

}  // namespace
}  // namespace kvern::server
