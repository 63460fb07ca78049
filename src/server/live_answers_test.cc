// Answers on their way, on an engine whose model is a hash; threads as in a server.
#include "server/live_answers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/hash_engine_test_util.h"

namespace kvern::server {
namespace {

using engine::hash_model::Machine;

// A client: what it got, and how it goes.
class FakeSink final : public HttpSink {
 public:
  void Send(HttpReply) override {}
  void Begin(HttpReply) override {}
  void Write(std::string) override {}
  void End() override {}
  void OnClosed(std::function<void()> closed) override {
    {
      const std::lock_guard lock(mutex_);
      if (!is_closed_) {
        closed_ = std::move(closed);
        return;
      }
    }
    closed();
  }

  void Close() {
    std::function<void()> closed;
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      closed = std::exchange(closed_, {});
    }
    if (closed) closed();
  }

 private:
  std::mutex mutex_;
  bool is_closed_ = false;
  std::function<void()> closed_;
};

// What one answer brought. Written by the writer, read after the answer's end.
struct Received {
  std::vector<TokenId> tokens;
  size_t pings = 0;
  std::optional<Report> report;
  std::atomic<bool> has_begun = false;
  bool throws_at_end = false;
};

class RecordingWriter final : public AnswerWriter {
 public:
  explicit RecordingWriter(Received& received, bool throws = false)
      : received_(received), throws_(throws) {}

  void Take(const Chunk& chunk) override {
    if (throws_) throw std::runtime_error("no room");
    for (const SampledToken& token : chunk.tokens) received_.tokens.push_back(token.id);
    received_.has_begun = true;
  }
  void Ping() override { ++received_.pings; }
  void End(const Report& report) override {
    if (received_.throws_at_end) throw std::runtime_error("no room");
    received_.report = report;
  }

 private:
  Received& received_;
  const bool throws_;
};

class Observer final : public AnswerObserver {
 public:
  void OnBegin(const AnswerInfo&, uint64_t) override { ++begun; }
  void OnFirstToken(int64_t) override { ++first_tokens; }
  void OnGap(int64_t) override { ++gaps; }
  void OnEnd(const AnswerInfo& info, const Report&, std::optional<FinishReason> finish) override {
    const std::lock_guard lock(mutex);
    ends.emplace_back(info.id, finish);
  }

  std::atomic<size_t> begun = 0, first_tokens = 0, gaps = 0;
  std::mutex mutex;
  std::vector<std::pair<std::string, std::optional<FinishReason>>> ends;
};

class LiveAnswersTest : public testing::Test {
 protected:
  ~LiveAnswersTest() override { live_.WaitUntilNone(); }

  Request Ask(uint32_t topic, size_t max_tokens) {
    Request request;
    for (size_t i = 0; i < 20; ++i) request.tokens.push_back(TokenId(topic + i % 3));
    request.seed = topic;
    request.max_tokens = max_tokens;
    return request;
  }

  std::shared_ptr<FakeSink> Start(const std::string& id, Request request, Received& received,
                                  bool throws = false) {
    auto sink = std::make_shared<FakeSink>();
    const Status status =
        live_.Start(*engine_, std::move(request), sink,
                    std::make_unique<RecordingWriter>(received, throws), {.id = id});
    EXPECT_TRUE(status.ok());
    return sink;
  }

  std::vector<TokenId> Alone(Request request) {
    const auto answer = engine_->Submit(std::move(request))->Wait();
    std::vector<TokenId> tokens;
    for (const SampledToken& token : answer->completions[0].tokens) tokens.push_back(token.id);
    return tokens;
  }

  void WaitUntil(const std::function<bool()>& is_so) {
    while (!is_so()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::shared_ptr<Machine> machine_ = std::make_shared<Machine>();
  std::unique_ptr<Engine> engine_ =
      engine::hash_model::MakeEngine(machine_, {.step_tokens = 64, .max_running = 8});
  SteadyClock clock_;
  Observer observer_;
  WorkerPool pool_{2};
  LiveAnswers live_{clock_, pool_, {&observer_}, 20'000};
};

TEST_F(LiveAnswersTest, EveryTokenComesInOrder) {
  std::vector<std::unique_ptr<Received>> received;
  for (uint32_t i = 0; i < 24; ++i) {
    received.push_back(std::make_unique<Received>());
    Start(std::to_string(i), Ask(i, 30), *received.back());
  }
  live_.WaitUntilNone();
  for (uint32_t i = 0; i < 24; ++i) {
    EXPECT_EQ(received[i]->tokens, Alone(Ask(i, 30)));
    EXPECT_EQ(received[i]->report->completion_tokens, 30u);
  }
  EXPECT_EQ(observer_.begun, 24u);
  EXPECT_EQ(observer_.first_tokens, 24u);
  EXPECT_EQ(observer_.gaps, 24u * 29);
  EXPECT_EQ(observer_.ends.size(), 24u);
  EXPECT_EQ(observer_.ends[0].second, FinishReason::kLength);
}

TEST_F(LiveAnswersTest, WhoGoesEndsItsRequest) {
  machine_->executor.SetDelay(std::chrono::milliseconds(2));
  Received gone, stays, named;
  const auto sink = Start("gone", Ask(1, 200), gone);
  Start("stays", Ask(2, 40), stays);
  Start("named", Ask(3, 200), named);
  WaitUntil([&] { return gone.has_begun && named.has_begun; });
  sink->Close();
  EXPECT_TRUE(live_.Cancel("named"));
  EXPECT_FALSE(live_.Cancel("nobody"));
  live_.WaitUntilNone();
  EXPECT_LT(gone.tokens.size(), 200u);
  EXPECT_LT(named.tokens.size(), 200u);
  EXPECT_EQ(stays.tokens.size(), 40u);
  EXPECT_EQ(engine_->stats().cancelled, 2u);
  EXPECT_EQ(engine_->stats().kv.bytes.active, 0u);
}

TEST_F(LiveAnswersTest, AClientThatHasGoneAlreadyIsNotServed) {
  machine_->executor.Hold(true);
  Received received;
  const auto sink = std::make_shared<FakeSink>();
  sink->Close();
  ASSERT_TRUE(live_
                  .Start(*engine_, Ask(1, 200), sink, std::make_unique<RecordingWriter>(received),
                         {.id = "x"})
                  .ok());
  machine_->executor.Hold(false);
  live_.WaitUntilNone();
  EXPECT_LT(received.tokens.size(), 200u);
}

TEST_F(LiveAnswersTest, AWriterThatThrowsEndsItsAnswerAlone) {
  Received broken, whole;
  Start("broken", Ask(1, 200), broken, /*throws=*/true);
  Start("whole", Ask(2, 30), whole);
  live_.WaitUntilNone();
  EXPECT_EQ(whole.tokens.size(), 30u);
  EXPECT_FALSE(broken.report.has_value());
}

TEST_F(LiveAnswersTest, AnEndThatCannotBeWrittenIsToldOnce) {
  Received received;
  received.throws_at_end = true;
  Start("x", Ask(1, 5), received);
  live_.WaitUntilNone();
  EXPECT_EQ(observer_.ends.size(), 1u);
}

TEST_F(LiveAnswersTest, ARefusedRequestHasNoAnswer) {
  Received received;
  Request request = Ask(1, 10);
  request.tokens[0] = TokenId{1'000'000};
  const Status status = live_.Start(*engine_, std::move(request), std::make_shared<FakeSink>(),
                                    std::make_unique<RecordingWriter>(received), {.id = "x"});
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(live_.size(), 0u);
  EXPECT_EQ(observer_.begun, 0u);
}

TEST_F(LiveAnswersTest, WhoHearsNothingIsPinged) {
  machine_->executor.Hold(true);
  Received received;
  Start("x", Ask(1, 5), received);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  machine_->executor.Hold(false);
  live_.WaitUntilNone();
  EXPECT_GE(received.pings, 1u);
  EXPECT_EQ(received.tokens.size(), 5u);
}

TEST_F(LiveAnswersTest, AllAreCancelledAtOnce) {
  machine_->executor.SetDelay(std::chrono::milliseconds(1));
  std::vector<std::unique_ptr<Received>> received;
  for (uint32_t i = 0; i < 16; ++i) {
    received.push_back(std::make_unique<Received>());
    Start(std::to_string(i), Ask(i, 200), *received.back());
  }
  live_.CancelAll();
  live_.WaitUntilNone();
  EXPECT_EQ(engine_->stats().cancelled, 16u);
}

TEST(WorkerPoolTest, EndsAfterWhatIsYetToCome) {
  std::atomic<size_t> done = 0;
  std::thread late;
  {
    WorkerPool pool(2);
    auto place = std::make_shared<WorkerPool::Place>(pool);
    late = std::thread([place = std::move(place), &done]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      place->Post([&done] { ++done; });
      place.reset();
    });
    const WorkerPool::Place given_up(pool);
  }
  late.join();
  EXPECT_EQ(done, 1u);
}

}  // namespace
}  // namespace kvern::server
