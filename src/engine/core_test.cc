// Core on the fake model, whose clients know their right answers (model_check/client.h): each
// scenario checks what the scheduler did; that the answers are right is checked all along.
#include "engine/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "engine/model_check/client.h"
#include "engine/model_check/fake_clock.h"
#include "engine/model_check/fake_executor.h"
#include "engine/model_check/fake_model.h"
#include "engine/policy.h"

namespace kvern::engine {
namespace {

using model_check::Client;
using model_check::FakeClock;
using model_check::FakeExecutor;
using model_check::FakeModel;
using model_check::Reading;
using ::testing::HasSubstr;
using Kind = LifecycleEvent::Kind;

// Passes plans on, but fails every one that has a token of its poison.
class PoisonedExecutor final : public Executor {
 public:
  explicit PoisonedExecutor(Executor* executor) : executor_(*executor) {}
  const ExecutorInfo& info() const override { return executor_.info(); }
  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    for (const Slice& slice : plan.slices) {
      if (poison && std::ranges::find(slice.tokens, *poison) != slice.tokens.end()) {
        if (throws) throw std::runtime_error("poison");
        return Errorf(ErrorCode::kOutOfMemory, "poison");
      }
    }
    return executor_.Execute(plan);
  }
  std::optional<TokenId> poison;
  bool throws = false;

 private:
  Executor& executor_;
};

// An engine of `num_blocks` blocks.
class TestEngine {
 public:
  explicit TestEngine(size_t num_blocks, const SchedulerOptions& options = {})
      : rules_{.end_tokens = {}, .context = 1024},
        store_(kv::MakeHostStore(model_check::CopyRows)),
        executor_(&model_,
                  {.vocab_size = model_.vocab_size,
                   .max_positions = 1024,
                   .max_step_tokens = 2048,
                   .groups = model_.groups,
                   .weight_bytes = 0,
                   .scratch_bytes = 0,
                   .num_layers = 6,
                   .max_carried_tokens = 32},
                  options.step_tokens, &clock_),
        poisoned_(&executor_) {
    kv::KvCacheOptions kv_options;
    kv_options.groups = model_.groups;
    kv_options.budget_bytes = num_blocks * model_check::kBlockBytes;
    kv_options.min_slab_bytes = model_check::kBlockBytes;
    kv_options.span_bytes_per_tenant = kv_options.budget_bytes / 2;
    cache_ = *kv::KvCache::Make(kv_options, store_.get());
    core_ =
        *Core::Make({.executor = &poisoned_, .cache = cache_.get(), .clock = &clock_}, options, {});
  }

  Result<Client*> TrySubmit(Request request, Reading reading = {}) {
    if (!request.seed) request.seed = clients_.size() + 1;
    request.sampling.seed = *request.seed;
    rules_.context = 1024;
    clients_.emplace_back(request, &rules_, &model_, &clock_, reading);
    Client& client = clients_.back();
    KVERN_ASSIGN_OR_RETURN(client.id, core_->Submit(std::move(request), &client));
    return &client;
  }
  Client& Submit(Request request, Reading reading = {}) {
    return **TrySubmit(std::move(request), reading);
  }

  bool Step() {
    const bool stepped = core_->Step();
    core_->CheckInvariants();
    cache_->CheckInvariants();
    return stepped;
  }
  void Finish() {
    while (!core_->idle()) ASSERT_TRUE(Step() || core_->idle());
    EXPECT_EQ(core_->stats().kv.bytes.active, 0);
    EXPECT_EQ(core_->stats().kv.bytes.reserved, 0);
  }

  Core& core() { return *core_; }
  FakeClock& clock() { return clock_; }
  FakeExecutor& executor() { return executor_; }
  PoisonedExecutor& poisoned() { return poisoned_; }

 private:
  const FakeModel model_{.groups = {model_check::FullGroup()}};
  model_check::EndRules rules_;
  FakeClock clock_;
  std::unique_ptr<kv::BlockStore> store_;
  FakeExecutor executor_;
  PoisonedExecutor poisoned_;
  std::unique_ptr<kv::KvCache> cache_;
  std::deque<Client> clients_;  // the core tells them until it ends
  std::unique_ptr<Core> core_;
};

// `size` tokens of a text of its own.
std::vector<TokenId> Text(size_t size, uint32_t topic) {
  std::vector<TokenId> text;
  for (uint32_t i = 0; i < size; ++i)
    text.push_back(TokenId{1 + (topic * 7 + i * (topic + 1)) % 20});
  return text;
}

std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Request Ask(std::vector<TokenId> tokens, size_t max_tokens) {
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = max_tokens;
  return request;
}

size_t Count(const Client& client, Kind kind) {
  return static_cast<size_t>(
      std::ranges::count(client.report().events, kind, &LifecycleEvent::kind));
}

TEST(CoreTest, WhatCanNeverFitIsRefusedWithTheNumbers) {
  TestEngine engine(/*num_blocks=*/8);
  const auto too_long = engine.TrySubmit(Ask(Text(1000, 1), 26));
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(too_long.error().message, HasSubstr("1000 prompt tokens and 26 new ones"));
  EXPECT_THAT(too_long.error().message, HasSubstr("context of 1024"));
  const auto too_large = engine.TrySubmit(Ask(Text(120, 1), 10));
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(too_large.error().message, HasSubstr("room for 128"));
  EXPECT_EQ(engine.core().stats().refused, 2);
  // The last token needs no room.
  Client& fits = engine.Submit(Ask(Text(120, 1), 9));
  engine.Finish();
  EXPECT_TRUE(fits.has_finish(FinishReason::kLength));
}

TEST(CoreTest, APromptNeedsTokensOfTheVocabulary) {
  TestEngine engine(/*num_blocks=*/8);
  EXPECT_THAT(engine.TrySubmit(Ask({}, 1)).error().message, HasSubstr("send at least one"));
  EXPECT_THAT(engine.TrySubmit(Ask({TokenId{1}, TokenId{24}}, 1)).error().message,
              HasSubstr("tokens[1]: 24 is outside the vocabulary of 24"));
}

TEST(CoreTest, AGroupNamedLikeATenantDoesNotShareItsText) {
  TestEngine engine(/*num_blocks=*/40);
  Request request = Ask(Text(64, 1), 2);
  request.tenant = "ann";
  engine.Submit(request);
  engine.Finish();
  Request of_group = request, of_tenant = request;
  of_group.tenant = "bob";
  of_group.cache_group = "ann";
  Client& stranger = engine.Submit(of_group);
  Client& owner = engine.Submit(of_tenant);
  engine.Finish();
  EXPECT_EQ(stranger.report().prompt.hit(), 0);
  EXPECT_EQ(owner.report().prompt.hit(), 63);
}

TEST(CoreTest, ASharedPrefixIsComputedOnceThoughAllComeTogether) {
  TestEngine engine(/*num_blocks=*/400, {.step_tokens = 128});
  const std::vector<TokenId> prefix = Text(320, 1);
  std::vector<Client*> clients;
  for (uint32_t i = 0; i < 32; ++i) {
    clients.push_back(&engine.Submit(Ask(Join(prefix, Text(8, 2 + i)), 4)));
  }
  engine.Finish();
  const EngineStats stats = engine.core().stats();
  EXPECT_EQ(stats.prefilled_tokens, 320 + 32 * 8);
  // The prefix, and a block for each: 8 tokens of its own and 3 of its answer.
  EXPECT_EQ(stats.kv.peak_bytes.active, (20 + 32) * model_check::kBlockBytes);
  EXPECT_EQ(stats.kv.prompts.ram + stats.kv.prompts.in_flight, 31 * 320);
  EXPECT_GT(stats.kv.prompts.in_flight, 0);
  for (size_t i = 1; i < clients.size(); ++i) {
    EXPECT_EQ(clients[i]->report().prefilled_tokens, 8);
  }
  EXPECT_GT(engine.executor().counts().shared_groups, 0);
}

TEST(CoreTest, WhenTheProducerIsCancelledTheNextTakesOver) {
  TestEngine engine(/*num_blocks=*/100, {.step_tokens = 32});
  const std::vector<TokenId> prefix = Text(200, 1);
  Client& first = engine.Submit(Ask(Join(prefix, Text(5, 2)), 4));
  Client& second = engine.Submit(Ask(Join(prefix, Text(5, 3)), 4));
  for (int i = 0; i < 3; ++i) engine.Step();
  first.is_cancelled = true;
  engine.core().Cancel(first.id);
  engine.Finish();
  EXPECT_TRUE(first.has_finish(FinishReason::kCancelled));
  // What was there when it took over is not computed again.
  EXPECT_LT(second.report().prefilled_tokens, 205u);
  EXPECT_TRUE(second.has_finish(FinishReason::kLength));
}

TEST(CoreTest, CancelGivesEverythingBackAtOnce) {
  TestEngine engine(/*num_blocks=*/100, {.step_tokens = 32});
  std::vector<Client*> clients;
  for (uint32_t i = 0; i < 6; ++i) clients.push_back(&engine.Submit(Ask(Text(100, i), 20)));
  for (int i = 0; i < 5; ++i) engine.Step();
  EXPECT_GT(engine.core().stats().kv.bytes.active, 0);
  for (Client* client : clients) {
    client->is_cancelled = true;
    engine.core().Cancel(client->id);
  }
  EXPECT_EQ(engine.core().stats().kv.bytes.active, 0);
  EXPECT_EQ(engine.core().stats().kv.bytes.reserved, 0);
  EXPECT_EQ(engine.core().stats().cancelled, 6);
  EXPECT_TRUE(engine.core().idle());
}

TEST(CoreTest, WhoeverCameLastYieldsAndLosesNoFinishedWork) {
  // Each needs 10 blocks in the end, 6 at the start: both are admitted, one has to yield.
  TestEngine engine(/*num_blocks=*/14);
  Client& first = engine.Submit(Ask(Text(90, 1), 70));
  Client& second = engine.Submit(Ask(Text(90, 2), 70));
  engine.Finish();
  EXPECT_EQ(first.report().preemptions, 0);
  EXPECT_EQ(second.report().preemptions, 1);  // nobody takes turns
  EXPECT_EQ(Count(second, Kind::kResumed), 1);
  EXPECT_GT(engine.core().stats().kv_bound_us, 0);
}

TEST(CoreTest, AHigherPriorityTakesThePlaceOfALowerOne) {
  TestEngine engine(/*num_blocks=*/12, {.policy = "priority"});
  Client& low = engine.Submit(Ask(Text(100, 1), 60));
  for (int i = 0; i < 4; ++i) engine.Step();
  Request request = Ask(Text(100, 2), 10);
  request.priority = 1;
  Client& high = engine.Submit(std::move(request));
  engine.Finish();
  EXPECT_EQ(low.report().preemptions, 1);
  EXPECT_EQ(high.report().preemptions, 0);
  EXPECT_LT(*high.report().total_us, *low.report().total_us);
}

TEST(CoreTest, WaitingRaisesAPriority) {
  SchedulerOptions options = {.policy = "priority", .max_running = 1, .ageing_us = 2000};
  TestEngine engine(/*num_blocks=*/40, options);
  Client& low = engine.Submit(Ask(Text(20, 1), 4));
  // There is always somebody with a higher priority waiting.
  std::vector<Client*> others;
  const auto add = [&] {
    Request request = Ask(Text(20, 2), 4);
    request.priority = 3;
    others.push_back(&engine.Submit(std::move(request)));
  };
  add();
  for (int i = 0; i < 200 && !low.is_finished(); ++i) {
    add();
    engine.Step();
  }
  ASSERT_TRUE(low.is_finished());
  // Nobody went first who came three priorities' worth of waiting later.
  for (Client* client : others) {
    if (client->num_tokens() == 0) continue;
    EXPECT_LT(client->arrival_us, low.arrival_us + 4 * 2000);
  }
  EXPECT_GT(others.back()->arrival_us, low.arrival_us + 5 * 2000);
  for (Client* client : others) {
    if (client->is_finished()) continue;
    client->is_cancelled = true;
    engine.core().Cancel(client->id);
  }
}

TEST(CoreTest, WhoFindsMostInTheCacheGoesFirstWithLpm) {
  TestEngine engine(/*num_blocks=*/60, {.policy = "lpm", .max_running = 1});
  engine.Submit(Ask(Text(200, 1), 2));
  engine.Finish();
  Client& busy = engine.Submit(Ask(Text(40, 5), 4));
  engine.Step();
  Client& cold = engine.Submit(Ask(Text(200, 2), 2));
  Client& warm = engine.Submit(Ask(Join(Text(200, 1), Text(4, 3)), 2));
  engine.Finish();
  EXPECT_TRUE(busy.is_finished());
  EXPECT_LT(*warm.report().queue_us, *cold.report().queue_us);
}

TEST(CoreTest, TenantsGetEqualShares) {
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 64, .max_running = 1});
  std::vector<Client*> many;
  for (uint32_t i = 0; i < 10; ++i) {
    Request request = Ask(Text(60, i), 4);
    request.tenant = "many";
    many.push_back(&engine.Submit(std::move(request)));
  }
  Request request = Ask(Text(60, 20), 4);
  request.tenant = "one";
  Client& one = engine.Submit(std::move(request));
  engine.Finish();
  EXPECT_GT(*one.report().queue_us, *many[0]->report().queue_us);
  EXPECT_LT(*one.report().queue_us, *many[1]->report().queue_us);
}

TEST(CoreTest, TooManyWaitingAreRefusedTheLeastImportantFirst) {
  TestEngine engine(/*num_blocks=*/40, {.max_running = 1, .max_waiting = 2});
  engine.Submit(Ask(Text(20, 1), 10));
  engine.Step();
  Client& waits = engine.Submit(Ask(Text(20, 2), 2));
  Client& waits_last = engine.Submit(Ask(Text(20, 3), 2));
  const auto refused = engine.TrySubmit(Ask(Text(20, 4), 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_THAT(refused.error().message, HasSubstr("2 requests wait"));
  Request request = Ask(Text(20, 5), 2);
  request.priority = 1;
  Client& important = engine.Submit(std::move(request));
  ASSERT_TRUE(waits_last.is_finished());
  EXPECT_EQ(waits_last.report().error->code, ErrorCode::kOverloaded);
  engine.Finish();
  EXPECT_TRUE(waits.has_finish(FinishReason::kLength));
  EXPECT_TRUE(important.has_finish(FinishReason::kLength));
  EXPECT_GT(engine.core().stats().queue_bound_us, 0);
}

TEST(CoreTest, ADeadlineEndsARequestWithWhatIsThere) {
  TestEngine engine(/*num_blocks=*/40);
  Request request = Ask(Text(20, 1), 400);
  request.deadline_us = 10'000;
  Client& client = engine.Submit(std::move(request));
  EXPECT_EQ(engine.core().next_wake_us(), engine.clock().now_us() + 10'000);
  engine.Finish();
  EXPECT_TRUE(client.has_finish(FinishReason::kDeadline));
  EXPECT_GT(client.num_tokens(), 5);
  EXPECT_EQ(engine.core().next_wake_us(), std::nullopt);
}

TEST(CoreTest, AStepThatFailsFailsOnlyWhoIsToBlame) {
  for (const bool throws : {false, true}) {
    TestEngine engine(/*num_blocks=*/200, {.step_tokens = 64});
    std::vector<Client*> clients;
    for (uint32_t i = 0; i < 5; ++i) clients.push_back(&engine.Submit(Ask(Text(40, i), 8)));
    engine.poisoned().poison = TokenId{23};  // which no text has
    engine.poisoned().throws = throws;
    Client& bad = engine.Submit(Ask(Join(Text(40, 7), {TokenId{23}}), 8));
    for (uint32_t i = 8; i < 12; ++i) clients.push_back(&engine.Submit(Ask(Text(40, i), 8)));
    // An answer may have the poison too: let it be harmless once the prompt has failed.
    while (!bad.is_finished()) ASSERT_TRUE(engine.Step());
    engine.poisoned().poison.reset();
    engine.Finish();
    EXPECT_TRUE(bad.has_finish(FinishReason::kFailed));
    EXPECT_THAT(bad.report().error->message, HasSubstr("poison"));
    const auto num_failed = std::ranges::count_if(
        clients, [](Client* client) { return client->has_finish(FinishReason::kFailed); });
    EXPECT_EQ(num_failed, 0);
  }
}

TEST(CoreTest, AReaderThatThrowsLosesItsRequestAlone) {
  TestEngine engine(/*num_blocks=*/100);
  Request forks = Ask(Text(30, 1), 10);
  forks.n = 3;
  Client& throws = engine.Submit(std::move(forks), {.throws_at = 4});
  Client& other = engine.Submit(Ask(Text(30, 2), 10));
  engine.Finish();
  EXPECT_TRUE(throws.has_thrown());
  EXPECT_THAT(throws.report().error->message, HasSubstr("the reader cannot bear it"));
  EXPECT_TRUE(other.has_finish(FinishReason::kLength));
}

TEST(CoreTest, LaterCompletionsBeginWithTheBlocksOfTheFirst) {
  for (const bool uses_cache : {true, false}) {
    TestEngine engine(/*num_blocks=*/100);
    Request request = Ask(Text(100, 1), 10);
    request.n = 8;
    request.cache.use = uses_cache;
    Client& client = engine.Submit(std::move(request));
    engine.Finish();
    EXPECT_EQ(Count(client, Kind::kForked), 7);
    // Each computes the last token's logits for itself, and that is all.
    EXPECT_EQ(client.report().prefilled_tokens, 100 + 7);
    // 6 whole blocks of the prompt; each writes the seventh, and copies it first.
    EXPECT_LE(engine.core().stats().kv.peak_bytes.active, (6 + 8 + 1) * model_check::kBlockBytes);
    EXPECT_EQ(engine.core().stats().self_check_failures, 0);
  }
}

TEST(CoreTest, AnEditInTheMiddleKeepsExactlyWhatIsUnchanged) {
  TestEngine engine(/*num_blocks=*/100);
  const std::vector<TokenId> before = Text(150, 1);
  engine.Submit(Ask(Join(before, Text(60, 2)), 8));
  engine.Finish();
  std::vector<TokenId> edited = Join(before, Text(60, 2));
  edited[150] = TokenId{static_cast<uint32_t>(edited[150]) % 20 + 1};
  Client& client = engine.Submit(Ask(edited, 8));
  engine.Finish();
  EXPECT_EQ(client.report().prompt.hit(), 150);
  EXPECT_EQ(client.report().prefilled_tokens, 60);
  EXPECT_EQ(client.report().misses[0].reason, kv::MissReason::kOtherToken);
  EXPECT_EQ(client.report().misses[0].differs_at, 150);
}

TEST(CoreTest, AFullHitIsCheckedAndDamageIsFoundAndComputedAnew) {
  TestEngine engine(/*num_blocks=*/100);
  const std::vector<TokenId> text = Text(64, 1);
  engine.Submit(Ask(text, 1));
  engine.Finish();
  Client& good = engine.Submit(Ask(text, 8));
  engine.Finish();
  EXPECT_EQ(Count(good, Kind::kSelfCheck), 1);
  EXPECT_EQ(good.report().prefilled_tokens, 1);
  EXPECT_EQ(engine.core().stats().self_checks, 1);

  Request request = Ask(text, 8);
  request.seed = 77;
  Client& client = engine.Submit(std::move(request));
  engine.executor().FlipBit(63 * 64);  // some bit of what the next step reads
  engine.Finish();
  EXPECT_EQ(engine.core().stats().self_check_failures, 1);
  EXPECT_TRUE(client.has_finish(FinishReason::kLength));  // with the right answer
}

TEST(CoreTest, WhoseReaderIsBehindPausesAndYields) {
  TestEngine engine(/*num_blocks=*/12);
  Client& slow = engine.Submit(Ask(Text(60, 1), 60), {.room = 3});
  for (int i = 0; i < 10; ++i) engine.Step();
  EXPECT_EQ(slow.num_tokens(), 3);
  EXPECT_EQ(engine.core().stats().paused, 1);
  EXPECT_FALSE(engine.Step());
  Client& other = engine.Submit(Ask(Text(150, 2), 4));  // needs its blocks
  while (engine.Step()) {
  }
  EXPECT_TRUE(other.is_finished());
  slow.ReadAtOnce();
  slow.Read();
  engine.Finish();
  EXPECT_EQ(slow.num_tokens(), 60);
  EXPECT_EQ(slow.report().preemptions, 1);
  EXPECT_EQ(Count(slow, Kind::kPaused), 1);
  EXPECT_EQ(Count(slow, Kind::kUnpaused), 1);
}

// Long enough for the times of their steps to be known.
void LetFourDecode(TestEngine& engine, uint32_t num_new) {
  for (uint32_t i = 0; i < 4; ++i) engine.Submit(Ask(Text(30, i), num_new));
  for (int i = 0; i < 60; ++i) engine.Step();
}

TEST(CoreTest, PrefillLeavesOthersTheirTimeBetweenTokens) {
  // The fake executor takes 200 us for a step and 20 us for a token, and some for its history.
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 512, .target_token_us = 1500});
  LetFourDecode(engine, 300);
  Client& late = engine.Submit(Ask(Text(900, 9), 2));
  int64_t longest_us = 0;
  int num_steps = 0;
  while (!late.is_finished()) {
    const int64_t before_us = engine.clock().now_us();
    ASSERT_TRUE(engine.Step());
    longest_us = std::max(longest_us, engine.clock().now_us() - before_us);
    ++num_steps;
  }
  EXPECT_LE(longest_us, 1500);
  EXPECT_LT(num_steps, 30);  // it uses what it may
  engine.Finish();
}

TEST(CoreTest, AChunkTakesSeveralStepsWhereFewTokensWouldFit) {
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 512, .target_token_us = 450});
  LetFourDecode(engine, 300);
  EXPECT_EQ(engine.executor().counts().parts, 0);
  Client& late = engine.Submit(Ask(Text(320, 9), 2));
  int64_t longest_us = 0;
  while (!late.is_finished()) {
    const int64_t before_us = engine.clock().now_us();
    ASSERT_TRUE(engine.Step());
    longest_us = std::max(longest_us, engine.clock().now_us() - before_us);
  }
  EXPECT_LE(longest_us, 450);
  // Chunks of 16 or 32 tokens in some steps each, and each step as many layers as it can.
  EXPECT_GE(engine.executor().counts().parts, 2 * (320 / 32 - 1));
  EXPECT_LE(engine.executor().counts().parts, 6 * (320 / 16));
  engine.Finish();
}

// Steps of 4 tokens take 280 us by themselves.
TEST(CoreTest, PrefillGoesOnWhereDecodingTakesAllTheTime) {
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 512, .target_token_us = 100});
  LetFourDecode(engine, 600);
  Client& late = engine.Submit(Ask(Text(320, 9), 2));
  int num_steps = 0;
  for (; !late.is_finished(); ++num_steps) ASSERT_TRUE(engine.Step());
  // Chunks of 16 tokens, a layer of 6 every other step.
  EXPECT_LE(num_steps, 320 / 16 * 6 * 2 + 10);
  engine.Finish();
}

TEST(CoreTest, AChunkBetweenLayersIsLetGoOf) {
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 512, .target_token_us = 450});
  LetFourDecode(engine, 300);
  Client& cancelled = engine.Submit(Ask(Text(320, 9), 2));
  const auto parts = [&] { return engine.executor().counts().parts; };
  while (parts() < 4) ASSERT_TRUE(engine.Step());
  cancelled.is_cancelled = true;
  engine.core().Cancel(cancelled.id);
  Client& next = engine.Submit(Ask(Text(320, 10), 2));
  while (parts() < 9) ASSERT_TRUE(engine.Step());
  engine.executor().FailStep();
  engine.Finish();
  EXPECT_EQ(next.num_tokens(), 2);
}

TEST(CoreTest, ManyDecodeInTurnsWhereAStepHasNoRoomForAll) {
  TestEngine engine(/*num_blocks=*/200, {.step_tokens = 16});
  std::vector<Client*> clients;
  for (uint32_t i = 0; i < 40; ++i) clients.push_back(&engine.Submit(Ask(Text(10, i), 12)));
  engine.Finish();
  for (const Client* client : clients) EXPECT_EQ(client->num_tokens(), 12);
}

TEST(CoreTest, ASpanIsKeptFromEviction) {
  TestEngine engine(/*num_blocks=*/40);
  Request request = Ask(Text(160, 1), 2);
  request.cache.spans = {{.num_tokens = 160}};
  Client& keeper = engine.Submit(std::move(request));
  engine.Finish();
  ASSERT_EQ(keeper.report().spans.size(), 1u);
  EXPECT_EQ(keeper.report().spans[0].num_tokens, 160);
  for (uint32_t i = 2; i < 8; ++i) engine.Submit(Ask(Text(400, i), 2));
  engine.Finish();
  Client& again = engine.Submit(Ask(Join(Text(160, 1), Text(3, 3)), 2));
  engine.Finish();
  EXPECT_EQ(again.report().prompt.hit(), 160);
}

TEST(CoreTest, OptionsThatMakeNoSenseAreNamed) {
  const FakeModel model{.groups = {model_check::FullGroup()}};
  FakeClock clock;
  FakeExecutor executor(&model,
                        {.vocab_size = 24,
                         .max_positions = 100,
                         .max_step_tokens = 64,
                         .groups = model.groups,
                         .weight_bytes = 0,
                         .scratch_bytes = 0},
                        64, &clock);
  const auto store = kv::MakeHostStore(model_check::CopyRows);
  kv::KvCacheOptions kv_options;
  kv_options.groups = model.groups;
  kv_options.budget_bytes = 64 * model_check::kBlockBytes;
  const auto cache = *kv::KvCache::Make(kv_options, store.get());
  const auto message = [&](const SchedulerOptions& options) {
    const auto core =
        Core::Make({.executor = &executor, .cache = cache.get(), .clock = &clock}, options, {});
    return core.ok() ? std::string() : core.error().message;
  };
  EXPECT_THAT(message({.step_tokens = 0}), HasSubstr("SchedulerOptions::step_tokens"));
  EXPECT_THAT(message({.step_tokens = 65}), HasSubstr("65 are more than the executor's 64"));
  EXPECT_THAT(message({.policy = "best", .step_tokens = 8}), HasSubstr("fcfs, priority, lpm"));
  EXPECT_THAT(message({.step_tokens = 8, .watermark = 1}), HasSubstr("watermark"));
  EXPECT_THAT(message({.step_tokens = 8, .ageing_us = 0}), HasSubstr("ageing_us"));
  EXPECT_EQ(message({.step_tokens = 8}), "");
}

// Every row of the table orders strictly, and as arrivals where it has no other reason.
TEST(SchedulingPolicyTest, EveryPolicyIsAStrictOrder) {
  for (const SchedulingPolicy* policy : SchedulingPolicies()) {
    SCOPED_TRACE(policy->name);
    EXPECT_EQ(*FindSchedulingPolicy(policy->name), policy);
    std::vector<Candidate> candidates;
    for (uint64_t i = 0; i < 20; ++i) {
      candidates.push_back({.arrival = i, .num_found = i * 7 % 5});
    }
    for (const Candidate& a : candidates) {
      EXPECT_FALSE(policy->before(a, a));
      for (const Candidate& b : candidates) {
        if (a.arrival == b.arrival) continue;
        EXPECT_NE(policy->before(a, b), policy->before(b, a));
        if (a.num_found != b.num_found) continue;
        EXPECT_EQ(policy->before(a, b), a.arrival < b.arrival);
      }
    }
  }
}

}  // namespace
}  // namespace kvern::engine
