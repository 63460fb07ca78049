#include "cli/serve_statistics.h"

#include <gtest/gtest.h>

#include "cli/serve_mixed_prefill.h"

namespace kvern::cli {
namespace {

// Answered with a token at each of these times.
RequestRecord Answered(int64_t due_us, std::vector<int64_t> times_us, size_t prompt_tokens = 10) {
  RequestRecord record;
  record.outcome = Outcome::kDone;
  record.prompt_tokens = prompt_tokens;
  record.due_us = due_us;
  record.first_us = times_us.front();
  record.end_us = times_us.back() + 1;
  record.num_tokens = times_us.size();
  record.chunk_us = std::move(times_us);
  return record;
}

TEST(ServeStatistics, PercentilesAreMeasuredValues) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Percentiles times = PercentilesOf(values);
  EXPECT_EQ(times.count, 100u);
  EXPECT_EQ(times.p50, 50);
  EXPECT_EQ(times.p90, 90);
  EXPECT_EQ(times.p95, 95);
  EXPECT_EQ(times.p99, 99);
  EXPECT_EQ(times.max, 100);
  EXPECT_EQ(times.mean, 50.5);
  EXPECT_EQ(PercentilesOf({7}).p99, 7);
  EXPECT_EQ(PercentilesOf({}).count, 0u);
}

TEST(ServeStatistics, TimesCountFromWhenARequestWasDue) {
  ServeRun run;
  run.wall_us = 2'000'000;
  run.records = {Answered(100, {300, 310, 340}), Answered(0, {50})};
  run.records.push_back({.outcome = Outcome::kRefused, .error = "full"});
  run.records.emplace_back();
  const ServeSummary summary = Summarize(run, {.ttft_us = 100.0, .tpot_us = {}});
  EXPECT_EQ(summary.num_done, 2u);
  EXPECT_EQ(summary.num_refused, 1u);
  EXPECT_EQ(summary.num_not_sent, 1u);
  EXPECT_EQ(summary.num_good, 1u);
  EXPECT_EQ(summary.ttft_us.max, 200);
  EXPECT_EQ(summary.tpot_us.count, 1u);
  EXPECT_EQ(summary.tpot_us.p50, 20);
  EXPECT_EQ(summary.itl_us.count, 2u);
  EXPECT_EQ(summary.itl_us.max, 30);
  EXPECT_EQ(summary.e2e_us.max, 241);
  EXPECT_EQ(summary.output_tokens, 4u);
  EXPECT_EQ(summary.prompt_tokens, 20u);
  EXPECT_EQ(summary.output_rate(), 2);
  EXPECT_EQ(summary.total_rate(), 12);
}

TEST(ServeStatistics, CountersAreThoseOfTheRun) {
  ServeRun run;
  run.wall_us = 1;
  run.before.steps = 5;
  run.after.steps = 25;
  run.before.kv.prompts.ram = 16;
  run.after.kv.prompts.ram = 48;
  run.before.kv.prompts.miss[0] = 1;
  run.after.kv.prompts.miss[0] = 3;
  run.after.schedule_us = 1;
  run.after.commit_us = 1;
  run.after.execute_us = 98;
  run.samples = {{.time_us = 0, .bytes = {.active = 100}, .running = 2, .waiting = 2},
                 {.time_us = 1, .bytes = {.active = 300}, .running = 3, .waiting = 0}};
  const ServeSummary summary = Summarize(run, {});
  EXPECT_EQ(summary.engine.steps, 20u);
  EXPECT_EQ(summary.engine.kv.prompts.ram, 32u);
  EXPECT_EQ(summary.engine.kv.prompts.miss[0], 2u);
  EXPECT_EQ(OverheadShare(summary.engine), 0.02);
  EXPECT_EQ(OverheadShare({}), 0);
  EXPECT_EQ(summary.mean_bytes.active, 200u);
  EXPECT_EQ(summary.mean_running, 2.5);
  EXPECT_EQ(summary.peak_running, 3u);
  EXPECT_EQ(summary.peak_wanted_bytes, 300u);
}

ServeSummary SummaryOf(EngineStats stats) {
  ServeSummary summary;
  summary.engine = stats;
  summary.mean_running = 8;
  summary.peak_running = 8;
  return summary;
}

bool HasLever(const Verdict& verdict, std::string_view words) {
  for (const std::string& lever : verdict.levers) {
    if (lever.find(words) != lever.npos) return true;
  }
  return false;
}

TEST(ServeVerdict, WaitingForBlocksIsKvBoundAndMoreMemoryHelps) {
  EngineStats stats;
  stats.steps = 100;
  stats.steps_kv_bound = 40;
  stats.preemptions = 3;
  stats.kv.budget_bytes = 1 << 20;
  ServeSummary summary = SummaryOf(stats);
  summary.peak_wanted_bytes = 3 << 20;
  const Verdict verdict = Judge(summary, {});
  EXPECT_EQ(verdict.bound, Bound::kKv);
  EXPECT_EQ(verdict.kv_share, 0.4);
  EXPECT_TRUE(HasLever(verdict, "1.0 MiB now; about 3.0 MiB"));
  EXPECT_TRUE(HasLever(verdict, "3 preemptions"));
}

TEST(ServeVerdict, WaitingForATurnIsQueueBound) {
  EngineStats stats;
  stats.steps = 100;
  stats.steps_queue_bound = 50;
  EngineOptions options;
  options.scheduler.max_running = 8;
  const Verdict verdict = Judge(SummaryOf(stats), options);
  EXPECT_EQ(verdict.bound, Bound::kQueue);
  EXPECT_TRUE(HasLever(verdict, "--max-running"));
  options.scheduler.max_running = 256;
  EXPECT_TRUE(HasLever(Judge(SummaryOf(stats), options), "a larger -b"));
  options.scheduler.target_token_us = 1;
  EXPECT_TRUE(HasLever(Judge(SummaryOf(stats), options), "--target-token-ms"));
}

TEST(ServeVerdict, NobodyWaitingIsComputeBoundAndAlwaysHasALever) {
  EngineStats stats;
  stats.steps = 100;
  stats.decoded_tokens = 800;
  EXPECT_EQ(Judge(SummaryOf(stats), {}).bound, Bound::kCompute);
  EXPECT_FALSE(Judge(SummaryOf(stats), {}).levers.empty());
  ServeSummary alone = SummaryOf(stats);
  alone.mean_running = 1;
  EXPECT_TRUE(HasLever(Judge(alone, {}), "speculation"));
  stats.kv.prompts.miss[static_cast<size_t>(kv::MissReason::kEvicted)] = 90;
  stats.kv.prompts.ram = 10;
  EXPECT_TRUE(HasLever(Judge(SummaryOf(stats), {}), "90 % of the prompt tokens"));
}

TEST(MixedPrefill, SplitsTheStreamsTimesAtTheArrival) {
  const auto workload = PlanMixedPrefill({.shape = {.requests = 1, .tail = 2, .prompt = 100}});
  ASSERT_TRUE(workload.ok());
  ASSERT_EQ(workload->requests.size(), 6u);
  EXPECT_EQ(workload->requests[4].ends_with, 5u);
  EXPECT_EQ(workload->requests[4].after.at(0).request, 3u);
  EXPECT_EQ(workload->requests[5].after.at(0).request, 4u);
  ServeRun run;
  std::vector<int64_t> stream;
  for (int i = 0; i < 12; ++i) stream.push_back(1'000'000 + 10 * i);  // settled at 80
  const RequestRecord earlier = Answered(0, stream);
  stream.push_back(1'000'210);  // beside the prompt
  run.records = {
      Answered(0, {500'000}, 100),          earlier, earlier, earlier, Answered(0, stream),
      Answered(1'000'110, {1'200'110}, 100)};
  const MixedPrefillResult result = JudgeMixedPrefill(*workload, run);
  EXPECT_EQ(result.undisturbed_us.count, 4 * 3u);
  EXPECT_EQ(result.undisturbed_us.max, 10);
  EXPECT_EQ(result.disturbed_us.count, 1u);
  EXPECT_EQ(result.disturbed_us.max, 100);
  EXPECT_EQ(result.alone_rate, 200);
  EXPECT_EQ(result.mixed_rate, 500);
  run.records[5].first_us.reset();
  EXPECT_EQ(JudgeMixedPrefill(*workload, run).mixed_rate, 0);
}

}  // namespace
}  // namespace kvern::cli
