#include "server/api/reply_parts.h"

#include <gtest/gtest.h>

#include <utility>

namespace kvern::server {
namespace {

class FakeSink final : public HttpSink {
 public:
  void Send(HttpReply reply) override { replies.push_back(std::move(reply)); }
  void Begin(HttpReply) override {}
  void Write(std::string) override {}
  void End() override {}
  void OnClosed(std::function<void()> function) override { closed = std::move(function); }

  std::vector<HttpReply> replies;
  std::function<void()> closed;
};

class ReplyPartsTest : public testing::Test {
 protected:
  const SteadyClock clock_ = {};
  ServerContext context_{.options = {}, .keys = nullptr, .clock = clock_, .id_prefix = "t"};
  const std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
  const Call call_{
      .server = context_,
      .request = {},
      .sink = sink_,
      .caller = {},
      .id = "1",
      .trace = std::make_shared<RequestTrace>(context_.log, clock_, "POST", "/completion", "1")};
};

TEST_F(ReplyPartsTest, AreOneArrayInTheirOrder) {
  const auto parts = ReplyParts::Make(call_, 2);
  const auto first = parts->SinkOf(0), second = parts->SinkOf(1);
  second->Send({.body = "2"});
  EXPECT_TRUE(sink_->replies.empty());
  first->Send({.body = "1"});
  ASSERT_EQ(sink_->replies.size(), 1u);
  EXPECT_EQ(sink_->replies[0].status, 200);
  EXPECT_EQ(sink_->replies[0].body, "[1,2]");
}

TEST_F(ReplyPartsTest, AnErrorIsThatOfAllAndCancelsTheOthers) {
  const auto parts = ReplyParts::Make(call_, 3);
  const auto first = parts->SinkOf(0), second = parts->SinkOf(1), third = parts->SinkOf(2);
  int num_cancelled = 0;
  first->OnClosed([&] { ++num_cancelled; });
  second->Send({.status = 400, .body = "bad"});
  EXPECT_EQ(num_cancelled, 1);
  third->OnClosed([&] { ++num_cancelled; });  // at once
  EXPECT_EQ(num_cancelled, 2);
  first->Send({.body = "1"});
  third->Send({.status = 500, .body = "worse"});
  ASSERT_EQ(sink_->replies.size(), 1u);
  EXPECT_EQ(sink_->replies[0].status, 400);
  EXPECT_EQ(sink_->replies[0].body, "bad");
}

TEST_F(ReplyPartsTest, AConnectionThatClosesEndsThemAll) {
  const auto parts = ReplyParts::Make(call_, 2);
  const auto first = parts->SinkOf(0), second = parts->SinkOf(1);
  int num_cancelled = 0;
  first->OnClosed([&] { ++num_cancelled; });
  second->OnClosed([&] { ++num_cancelled; });
  sink_->closed();
  EXPECT_EQ(num_cancelled, 2);
}

}  // namespace
}  // namespace kvern::server
