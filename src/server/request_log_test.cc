#include "server/request_log.h"

#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

AnswerInfo InfoOf(const std::string& id, const std::string& tenant, uint32_t first_token = 1) {
  return {.id = id, .tenant = tenant, .prompt_tokens = 10, .prompt_head = {TokenId{first_token}}};
}

Report ReportOf(uint64_t id, kv::MissReason reason = kv::MissReason::kNeverSeen,
                size_t num_tokens = 0) {
  Report report{.id = id};
  report.receipt = "{}";
  report.misses.push_back({.reason = reason, .position = 0, .num_tokens = num_tokens});
  return report;
}

TEST(RequestLog, LiveOnesComeFirstThenTheLastThatEnded) {
  RequestLog log;
  for (uint64_t i = 1; i <= 4; ++i) log.OnBegin(InfoOf("r" + std::to_string(i), "a"), i);
  log.OnBegin(InfoOf("other", "b"), 9);
  log.OnEnd(InfoOf("r1", "a"), ReportOf(1), FinishReason::kStop);
  log.OnEnd(InfoOf("r3", "a"), ReportOf(3), FinishReason::kCancelled);
  std::string ids;
  for (const RequestRecord& record : log.List("a", 100)) ids += record.info.id + " ";
  EXPECT_EQ(ids, "r2 r4 r3 r1 ");
  EXPECT_EQ(log.List({}, 100).size(), 5u);
  ASSERT_EQ(log.List({}, 2).size(), 2u);
  EXPECT_EQ(log.List({}, 2)[0].info.id, log.List({}, 100)[0].info.id);
  EXPECT_EQ(log.Find("r2")->report, nullptr);
  EXPECT_EQ(log.Find("r3")->finish, FinishReason::kCancelled);
  EXPECT_EQ(log.Find("r3")->report->receipt, "");
  EXPECT_EQ(log.Find("r9"), std::nullopt);
}

TEST(RequestLog, KeepsABoundedNumber) {
  RequestLog log;
  for (uint64_t i = 1; i <= RequestLog::kMaxEnded + 50; ++i) {
    const AnswerInfo info = InfoOf(std::to_string(i), "a", static_cast<uint32_t>(i));
    log.OnBegin(info, i);
    log.OnEnd(info, ReportOf(i, kv::MissReason::kEvicted, i), FinishReason::kStop);
  }
  EXPECT_EQ(log.List({}, SIZE_MAX).size(), RequestLog::kMaxEnded);
  EXPECT_EQ(log.Find("1"), std::nullopt);
  for (uint64_t i = 1000; i <= 1000 + RequestLog::kMaxRecomputed; ++i) {
    log.OnEnd(InfoOf("x", "b", static_cast<uint32_t>(i)), ReportOf(i, kv::MissReason::kEvicted, i),
              FinishReason::kStop);
  }
  EXPECT_EQ(log.MostRecomputed({}, 10'000).size(), RequestLog::kMaxRecomputed);
}

TEST(RequestLog, CountsWhatWasComputedAgainByHowItBegins) {
  RequestLog log;
  log.OnEnd(InfoOf("1", "a", 5), ReportOf(1, kv::MissReason::kEvicted, 100), {});
  log.OnEnd(InfoOf("2", "a", 5), ReportOf(2, kv::MissReason::kPolicyOff, 30), {});
  log.OnEnd(InfoOf("3", "a", 6), ReportOf(3, kv::MissReason::kEvicted, 120), {});
  log.OnEnd(InfoOf("4", "a", 7), ReportOf(4, kv::MissReason::kNeverSeen, 500), {});
  log.OnEnd(InfoOf("5", "b", 5), ReportOf(5, kv::MissReason::kEvicted, 1000), {});
  const auto rows = log.MostRecomputed("a", 10);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].tokens, 130u);
  EXPECT_EQ(rows[0].times, 2u);
  EXPECT_EQ(rows[0].reason, kv::MissReason::kPolicyOff);
  EXPECT_EQ(rows[0].prompt_head, std::vector{TokenId{5}});
  EXPECT_EQ(rows[1].tokens, 120u);
  EXPECT_EQ(log.MostRecomputed({}, 1)[0].tenant, "b");
}

}  // namespace
}  // namespace kvern::server
