#include "engine/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/hash_engine_test_util.h"
#include "engine/receipt.h"

namespace kvern {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using engine::hash_model::kContext;
using engine::hash_model::kEndToken;
using engine::hash_model::kVocabSize;
using engine::hash_model::Machine;
using engine::hash_model::NextToken;

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : machine_(std::make_shared<Machine>()) {
    engine_ = MakeEngine({.step_tokens = 64, .max_running = 8});
  }

  std::unique_ptr<Engine> MakeEngine(const SchedulerOptions& scheduler) {
    return engine::hash_model::MakeEngine(machine_, scheduler);
  }

  Reply Submit(Request request) {
    auto reply = engine_->Submit(std::move(request));
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return std::move(reply).value();
  }

  Error ErrorOf(Request request) {
    const auto reply = engine_->Submit(std::move(request));
    EXPECT_FALSE(reply.ok());
    return reply.ok() ? Error{} : reply.error();
  }

  template <typename Condition>
  void WaitUntil(Condition condition) {
    while (!condition(engine_->stats())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::shared_ptr<Machine> machine_;
  std::unique_ptr<Engine> engine_;
};

Request MakeRequest(uint32_t topic, size_t num_prompt = 40, size_t max_tokens = 20) {
  Request request;
  for (size_t i = 0; i < num_prompt; ++i) {
    request.tokens.push_back(TokenId(i < num_prompt / 2 ? 7 : topic % kEndToken));
  }
  request.seed = topic;
  request.max_tokens = max_tokens;
  return request;
}

std::vector<uint32_t> Ids(const std::vector<SampledToken>& tokens) {
  std::vector<uint32_t> ids;
  for (const SampledToken& token : tokens) ids.push_back(static_cast<uint32_t>(token.id));
  return ids;
}

std::vector<uint32_t> Expected(const Request& request, uint32_t completion = 0) {
  std::vector<TokenId> history = request.tokens;
  for (size_t i = 0; i < *request.max_tokens; ++i) {
    history.push_back(NextToken(history, *request.seed, completion).id);
  }
  std::vector<uint32_t> ids;
  for (size_t i = request.tokens.size(); i < history.size(); ++i) {
    ids.push_back(static_cast<uint32_t>(history[i]));
  }
  return ids;
}

TEST_F(ServiceTest, AnswersEveryCompletion) {
  Request request = MakeRequest(3);
  request.n = 3;
  Reply reply = Submit(request);
  const auto answer = reply.Wait();
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->completions.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Ids(answer->completions[i].tokens), Expected(request, i));
    EXPECT_EQ(answer->completions[i].finish, FinishReason::kLength);
  }
  EXPECT_TRUE(reply.finished());
  EXPECT_EQ(reply.Next(), std::nullopt);
  const Report& report = answer->report;
  EXPECT_EQ(report.id, reply.id());
  EXPECT_EQ(report.seed, 3u);
  EXPECT_EQ(report.prompt_tokens, 40u);
  EXPECT_EQ(report.completion_tokens, 60u);
  EXPECT_EQ(report.prompt.hit() + report.prompt.missed(), 40u);
  EXPECT_FALSE(report.events.empty());
  EXPECT_EQ(engine_->stats().finished, 1u);
}

TEST_F(ServiceTest, GivesAReceiptThatDependsOnTheAnswerAlone) {
  const Request request = MakeRequest(3);
  const auto first = Submit(request).Wait();
  const auto second = Submit(request).Wait();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_GT(second->report.prompt.hit(), 0u);
  EXPECT_EQ(first->report.receipt, second->report.receipt);
  const auto receipt = engine::ParseReceipt(first->report.receipt);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  EXPECT_EQ(receipt->model.name, "hash");
  EXPECT_EQ(receipt->model.fingerprint, engine_->fingerprint());
  EXPECT_EQ(receipt->model.fingerprint, EngineAccess::ModelOf(*engine_).fingerprint);
  EXPECT_EQ(receipt->request.tokens, request.tokens);
  EXPECT_EQ(receipt->request.seed, 3u);
  engine::AnswerHasher hasher(1);
  hasher.Add({.completion = 0,
              .tokens = first->completions[0].tokens,
              .text = {},
              .finish = FinishReason::kLength});
  EXPECT_EQ(receipt->answer.digest, hasher.Summary().digest);
}

TEST_F(ServiceTest, DrawsASeedWhereNoneIsGiven) {
  Request request = MakeRequest(3);
  request.seed = {};
  const uint64_t first = Submit(request).report().seed;
  const uint64_t second = Submit(request).report().seed;
  EXPECT_NE(first, second);
  EXPECT_LT(first, uint64_t{1} << 53);
}

TEST_F(ServiceTest, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf({}).message, HasSubstr("text and tokens: none"));
  Request both = MakeRequest(1);
  both.text = "text";
  EXPECT_THAT(ErrorOf(both).message, HasSubstr("text and tokens: both"));
  EXPECT_THAT(ErrorOf({.text = "text"}).message, HasSubstr("no tokenizer"));
  EXPECT_THAT(ErrorOf({.tokens = {TokenId{1}, TokenId{kVocabSize}}}).message,
              HasSubstr("tokens[1]: 500"));
  Request cold = MakeRequest(1);
  cold.sampling.temperature = -1;
  EXPECT_THAT(ErrorOf(cold).message, HasSubstr("temperature"));
  EXPECT_EQ(ErrorOf(MakeRequest(1, kContext + 1)).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->stats().running, 0u);
}

TEST_F(ServiceTest, ABurstIsServedTogether) {
  machine_->executor.Hold(true);
  std::vector<Reply> replies;
  for (uint32_t i = 0; i < 5; ++i) replies.push_back(Submit(MakeRequest(i)));  // does not wait
  EXPECT_NE(replies[0].id(), replies[1].id());
  replies[3].Cancel();
  machine_->executor.Hold(false);
  for (uint32_t i = 0; i < 5; ++i) {
    const auto answer = replies[i].Wait();
    ASSERT_TRUE(answer.ok());
    const std::vector<uint32_t> expected =
        i == 3 ? std::vector<uint32_t>() : Expected(MakeRequest(i));
    EXPECT_EQ(Ids(answer->completions[0].tokens), expected);
  }
  EXPECT_LE(engine_->stats().steps, 5 + 20u);
}

TEST_F(ServiceTest, TooManyAreRefusedByPriority) {
  engine_.reset();
  engine_ = MakeEngine({.step_tokens = 64, .max_running = 1, .max_waiting = 2});
  machine_->executor.SetDelay(std::chrono::milliseconds(2));
  Reply running = Submit(MakeRequest(1, 40, 200));
  ASSERT_TRUE(running.Next());
  Reply first = Submit(MakeRequest(2)), second = Submit(MakeRequest(3));
  EXPECT_EQ(ErrorOf(MakeRequest(4)).code, ErrorCode::kOverloaded);
  EXPECT_EQ(engine_->stats().refused, 1u);
  Request urgent = MakeRequest(5);
  urgent.priority = 1;
  Reply better = Submit(urgent);
  const auto worst = second.Wait();
  ASSERT_FALSE(worst.ok());
  EXPECT_EQ(worst.error().code, ErrorCode::kOverloaded);
  machine_->executor.SetDelay({});
  EXPECT_TRUE(better.Wait().ok());
  EXPECT_TRUE(first.Wait().ok());
}

TEST_F(ServiceTest, SlowReaderPausesItsRequestAlone) {
  Request slow = MakeRequest(1, 40, 100);
  slow.max_queued_chunks = 4;
  Reply reply = Submit(slow);
  WaitUntil([](const EngineStats& stats) { return stats.paused == 1; });
  const auto other = Submit(MakeRequest(2)).Wait();
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Ids(other->completions[0].tokens), Expected(MakeRequest(2)));
  EXPECT_EQ(engine_->stats().finished, 1u);
  EXPECT_FALSE(reply.finished());
  const auto answer = reply.Wait();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(Ids(answer->completions[0].tokens), Expected(slow));
}

TEST_F(ServiceTest, DestructionCancelsAndRepliesStayReadable) {
  Request request = MakeRequest(1, 40, 200);
  request.max_queued_chunks = 4;
  Reply paused = Submit(request);
  Reply unread = Submit(request);
  WaitUntil([](const EngineStats& stats) { return stats.paused == 2; });
  engine_.reset();
  std::vector<uint32_t> ids;
  std::optional<FinishReason> finish;
  while (const auto chunk = paused.Next()) {
    for (const SampledToken& token : chunk->tokens) ids.push_back(static_cast<uint32_t>(token.id));
    if (chunk->finish) finish = chunk->finish;
  }
  EXPECT_EQ(finish, FinishReason::kCancelled);
  const auto expected = Expected(request);
  EXPECT_EQ(ids, std::vector<uint32_t>(expected.begin(), expected.begin() + ids.size()));
  EXPECT_TRUE(paused.finished());
  EXPECT_THAT(paused.report().receipt, IsEmpty());
  unread.Cancel();  // nothing to do any more
  EXPECT_EQ(unread.Wait()->completions[0].finish, FinishReason::kCancelled);
}

TEST_F(ServiceTest, DroppedReplyIsCancelled) {
  Request request = MakeRequest(1, 40, 200);
  request.max_queued_chunks = 2;
  {
    const Reply reply = Submit(request);
    WaitUntil([](const EngineStats& stats) { return stats.paused == 1; });
  }
  WaitUntil([](const EngineStats& stats) { return stats.cancelled == 1; });
  EXPECT_EQ(engine_->stats().kv.bytes.active, 0u);
  Reply moved = Submit(request);
  moved = Submit(MakeRequest(2));  // drops the first
  WaitUntil([](const EngineStats& stats) { return stats.cancelled == 2; });
  EXPECT_EQ(Ids(moved.Wait()->completions[0].tokens), Expected(MakeRequest(2)));
}

TEST_F(ServiceTest, DrainWaitsForAllAndAcceptsNoMore) {
  std::vector<Reply> replies;
  for (uint32_t i = 0; i < 5; ++i) replies.push_back(Submit(MakeRequest(i)));
  engine_->Drain();
  EXPECT_EQ(engine_->stats().finished, 5u);
  EXPECT_EQ(engine_->stats().running, 0u);
  EXPECT_EQ(ErrorOf(MakeRequest(9)).code, ErrorCode::kOverloaded);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Ids(replies[i].Wait()->completions[0].tokens), Expected(MakeRequest(i)));
  }
  engine_->Drain();
}

TEST_F(ServiceTest, CallbackGetsTheChunks) {
  Request request = MakeRequest(4);
  std::vector<uint32_t> ids;
  std::optional<FinishReason> finish;
  std::optional<Reply> next;
  request.on_chunk = [&](const Chunk& chunk) {
    for (const SampledToken& token : chunk.tokens) ids.push_back(static_cast<uint32_t>(token.id));
    finish = chunk.finish;
    if (!next) next = Submit(MakeRequest(5));
  };
  const auto answer = Submit(request).Wait();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(ids, Expected(request));
  EXPECT_EQ(finish, FinishReason::kLength);
  EXPECT_THAT(answer->completions[0].tokens, IsEmpty());
  EXPECT_EQ(answer->completions[0].finish, FinishReason::kLength);
  EXPECT_FALSE(answer->report.receipt.empty());
  EXPECT_EQ(Ids(next->Wait()->completions[0].tokens), Expected(MakeRequest(5)));
}

TEST_F(ServiceTest, CallbackThatThrowsFailsItsRequestAlone) {
  Request bad = MakeRequest(1);
  std::atomic<int> num_calls{0};
  bad.on_chunk = [&](const Chunk&) {
    if (++num_calls == 3) throw std::runtime_error("the disk is full");
  };
  Reply failing = Submit(bad);
  const auto good = Submit(MakeRequest(2)).Wait();
  const auto answer = failing.Wait();
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("the disk is full"));
  EXPECT_EQ(num_calls, 3);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(Ids(good->completions[0].tokens), Expected(MakeRequest(2)));
  EXPECT_EQ(engine_->stats().failed, 1u);
}

TEST_F(ServiceTest, TheEndIsToldOnceHoweverItCame) {
  std::atomic<int> num_ends{0};
  const auto submit = [&](Request request) {
    request.on_end = [&] { ++num_ends; };
    return Submit(std::move(request));
  };
  Request failing = MakeRequest(2);
  failing.on_chunk = [](const Chunk&) { throw std::runtime_error("no"); };
  Request heard = MakeRequest(3);
  std::atomic<bool> is_told_all{false};
  heard.on_chunk = [&](const Chunk& chunk) {
    if (chunk.finish) is_told_all = true;
  };
  Reply good = submit(heard), bad = submit(failing);
  EXPECT_TRUE(good.Wait().ok());
  EXPECT_TRUE(is_told_all);
  EXPECT_FALSE(bad.Wait().ok());
  Reply cancelled = submit(MakeRequest(1, 40, 200));
  cancelled.Cancel();
  while (cancelled.Next()) {
  }
  engine_->Drain();
  while (num_ends < 3) std::this_thread::yield();
  Request refused = MakeRequest(4);
  refused.on_end = [&] { ++num_ends; };
  EXPECT_FALSE(engine_->Submit(std::move(refused)).ok());
  EXPECT_EQ(num_ends, 3);
}

TEST_F(ServiceTest, CallbackIsNotCalledOnceItsReplyIsGone) {
  Request request = MakeRequest(1, 40, 200);
  auto num_calls = std::make_unique<std::atomic<int>>(0);
  request.on_chunk = [&](const Chunk&) { ++*num_calls; };
  {
    const Reply reply = Submit(request);
    while (*num_calls == 0) std::this_thread::yield();
  }
  num_calls.reset();  // a call now would be found by the sanitizers
  engine_->Drain();
  EXPECT_EQ(engine_->stats().cancelled + engine_->stats().finished, 1u);
}

TEST_F(ServiceTest, AsksDoNotWaitForALongStep) {
  const Request request = MakeRequest(1);
  ASSERT_TRUE(Submit(request).Wait().ok());
  Request slow = MakeRequest(1, 60);
  slow.max_queued_chunks = 1;
  Reply reply = Submit(slow);
  WaitUntil([](const EngineStats& stats) { return stats.paused == 1; });
  machine_->executor.Hold(true);
  ASSERT_TRUE(reply.Next());  // and so the next step begins
  EXPECT_EQ(reply.Next(2000), std::nullopt);
  EXPECT_FALSE(reply.finished());
  EXPECT_EQ(reply.report().prompt_tokens, 60u);
  EXPECT_EQ(engine_->stats().requests, 2u);
  EXPECT_GT(engine_->Explain(request)->split.hit(), 0u);
  reply.Cancel();
  machine_->executor.Hold(false);
  const auto answer = reply.Wait();
  ASSERT_TRUE(answer.ok());
}

TEST_F(ServiceTest, ReportsALiveRequest) {
  Request request = MakeRequest(1, 40, 100);
  request.max_queued_chunks = 4;
  Reply reply = Submit(request);
  WaitUntil([](const EngineStats& stats) { return stats.paused == 1; });
  const Report report = reply.report();
  EXPECT_EQ(report.id, reply.id());
  EXPECT_EQ(report.completion_tokens, 4u);
  EXPECT_TRUE(report.ttft_us.has_value());
  EXPECT_FALSE(report.total_us.has_value());
  EXPECT_THAT(report.receipt, IsEmpty());
}

TEST_F(ServiceTest, ExplainsWhatAPromptWouldFind) {
  const Request request = MakeRequest(1);
  EXPECT_EQ(engine_->Explain(request)->split.hit(), 0u);
  ASSERT_TRUE(Submit(request).Wait().ok());
  EXPECT_EQ(engine_->Explain(request)->split.hit(), 39u);
  Request other = request;
  other.tenant = "other";
  EXPECT_EQ(engine_->Explain(other)->split.hit(), 0u);
  other.cache_group = "";
  EXPECT_EQ(engine_->Explain(other)->split.hit(), 39u);
  Request alone = request;
  alone.cache.use = false;
  EXPECT_EQ(engine_->Explain(alone)->split.miss[size_t(kv::MissReason::kPolicyOff)], 40u);
  EXPECT_FALSE(engine_->Explain({}).ok());
}

TEST_F(ServiceTest, ExecutorThatFailsFailsTheRequest) {
  machine_->executor.Fail();
  const auto answer = Submit(MakeRequest(1)).Wait();
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("on fire"));
}

TEST_F(ServiceTest, DeadlineEndsWhatNobodyElseEnds) {
  Request request = MakeRequest(1, 40, 200);
  request.deadline_us = 20'000;
  request.max_queued_chunks = 2;
  Reply reply = Submit(request);
  WaitUntil([](const EngineStats& stats) { return stats.paused == 1; });
  WaitUntil([](const EngineStats& stats) { return stats.running == 0; });
  const auto answer = reply.Wait();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->completions[0].finish, FinishReason::kDeadline);
  EXPECT_FALSE(answer->completions[0].tokens.empty());
}

// One client: submits, reads, cancels and drops by chance. Whatever ends well must be right.
class Client {
 public:
  Client(Engine* engine, uint64_t seed) : engine_(*engine), random_(seed) {}

  void Run(int num_requests) {
    for (int i = 0; i < num_requests; ++i) RunOne();
  }

 private:
  void RunOne() {
    Request request = MakeRequest(1 + random_.Below(5), 20 + random_.Below(60), 30);
    request.max_queued_chunks = 1 + random_.Below(8);
    request.n = 1 + random_.Below(2);
    request.cache.use = random_.Below(4) != 0;
    auto reply = engine_.Submit(request);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    switch (random_.Below(5)) {
      case 0:
        return;  // dropped
      case 1: {
        std::thread other([&] { reply->Cancel(); });
        Check(request, *reply);
        other.join();
        return;
      }
      case 2:
        (void)engine_.stats();
        (void)engine_.Explain(request);
        (void)reply->report();
        break;
      case 3:
        (void)reply->Next(100);
        return;
      default:
        break;
    }
    Check(request, *reply);
  }

  void Check(const Request& request, Reply& reply) {
    const auto answer = reply.Wait();
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    for (uint32_t i = 0; i < request.n; ++i) {
      const Completion& completion = answer->completions[i];
      std::vector<uint32_t> expected = Expected(request, i);
      EXPECT_LE(completion.tokens.size(), expected.size());
      if (completion.finish == FinishReason::kCancelled) {
        expected.resize(completion.tokens.size());
      }
      EXPECT_EQ(Ids(completion.tokens), expected);
    }
  }

  Engine& engine_;
  SplitMix64 random_;
};

TEST_F(ServiceTest, ManyThreadsAtOnce) {
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(kSeed);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 6; ++i) {
    threads.emplace_back([this, i] { Client(engine_.get(), kSeed * 100 + i).Run(25); });
  }
  for (std::thread& thread : threads) thread.join();
  engine_->Drain();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.requests, 150u);
  EXPECT_EQ(stats.finished + stats.cancelled, 150u);
  EXPECT_EQ(stats.kv.bytes.active, 0u);
  EXPECT_EQ(stats.kv.one_answer_violations, 0u);
}

TEST_F(ServiceTest, SaysWhatEachLiveRequestWaitsFor) {
  engine_ = MakeEngine({.step_tokens = 64, .max_running = 1});
  machine_->executor.Hold(true);
  Reply first = Submit(MakeRequest(1));
  WaitUntil([](const EngineStats& stats) { return stats.requests == 1; });
  Reply second = Submit(MakeRequest(2));
  std::promise<std::vector<Report>> asked;
  EngineAccess::AskReports(*engine_,
                           [&](std::vector<Report> reports) { asked.set_value(reports); });
  machine_->executor.Hold(false);
  std::vector<Report> reports = asked.get_future().get();
  ASSERT_EQ(reports.size(), 2u);
  std::ranges::sort(reports, {}, &Report::id);
  EXPECT_EQ(reports[0].id, first.id());
  EXPECT_EQ(reports[0].waits_for, std::nullopt);
  EXPECT_EQ(reports[1].id, second.id());
  EXPECT_EQ(reports[1].waits_for, WaitCause::kTurn);
  EXPECT_TRUE(first.Wait().ok() && second.Wait().ok());
}

TEST_F(ServiceTest, DropsWhatOneTenantCachedOrAll) {
  Request mine = MakeRequest(1), theirs = MakeRequest(2);
  mine.tenant = "a";
  theirs.tenant = "b";
  ASSERT_TRUE(Submit(mine).Wait().ok());
  ASSERT_TRUE(Submit(theirs).Wait().ok());
  const auto drop = [this](const Request* owner) {
    std::promise<size_t> dropped;
    EngineAccess::AskDropCached(*engine_, owner, [&](size_t n) { dropped.set_value(n); });
    return dropped.get_future().get();
  };
  const auto found = [this](const Request& request) {
    return engine_->Explain(request)->split.hit();
  };
  const Request stranger = {.tenant = "c"};
  EXPECT_EQ(EngineAccess::FindNamespace(*engine_, stranger), std::nullopt);
  EXPECT_EQ(drop(&stranger), 0u);
  EXPECT_GT(drop(&mine), 0u);
  EXPECT_EQ(found(mine), 0u);
  EXPECT_GT(found(theirs), 0u);
  EXPECT_GT(drop(nullptr), 0u);
  EXPECT_EQ(found(theirs), 0u);
}

}  // namespace
}  // namespace kvern
