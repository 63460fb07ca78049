// What the engine allocates for a token: nothing, but where a block begins or is published, and for
// the chunk that a reader gets to keep. What executors allocate is not counted:
// exec/step_memory_test.cc does that for the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/counted_new.h"
#include "engine/model_check/fake_clock.h"
#include "engine/model_check/fake_executor.h"
#include "engine/model_check/fake_model.h"
#include "engine/model_check/fake_proposer.h"
#include "engine/reply_state.h"
#include "text/vocab_test_util.h"

namespace kvern::engine {
namespace {

using model_check::FakeClock;
using model_check::FakeExecutor;
using model_check::FakeModel;
using model_check::FakeProposer;

constexpr size_t kContext = 1024;
constexpr size_t kPrefix = 160;  // a chunk and two blocks
constexpr size_t kWarmUp = 40;   // steps
constexpr size_t kSteps = 240;

// Passes plans on, uncounted, and sees whether blocks begin or end.
class WatchedExecutor final : public Executor {
 public:
  explicit WatchedExecutor(Executor* executor) : executor_(*executor) {}
  const ExecutorInfo& info() const override { return executor_.info(); }
  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    is_counting = false;
    num_tokens = num_block_edges = 0;
    for (const Slice& slice : plan.slices) {
      num_tokens += slice.tokens.size();
      for (size_t i = 0; i < slice.tokens.size(); ++i) {
        const size_t row = (slice.first_position + i) % kBlockTokens;
        num_block_edges += row == 0 || row == kBlockTokens - 1 ? 1 : 0;
      }
    }
    auto outputs = executor_.Execute(plan);
    is_counting = true;
    return outputs;
  }

  // Of the last step.
  size_t num_tokens = 0;
  size_t num_block_edges = 0;  // first and last rows of blocks that were written

 private:
  Executor& executor_;
};

// The same for a proposer.
class UncountedProposer final : public Proposer {
 public:
  explicit UncountedProposer(Proposer* proposer) : proposer_(*proposer) {}
  void Propose(std::span<const DraftRequest> batch) override {
    is_counting = false;
    for (const DraftRequest& request : batch) request.draft->reserve(request.max_draft);
    proposer_.Propose(batch);
    is_counting = true;
  }
  void Forget(SequenceKey key) override { proposer_.Forget(key); }

 private:
  Proposer& proposer_;
};

// Keeps nothing.
class Listener final : public ReplySink {
 public:
  void Take(const Chunk& chunk) override { num_bytes += chunk.text.size(); }
  void Finish(Report /*report*/) override {}
  size_t num_bytes = 0;
};

enum class Reader { kNone, kCallback, kQueue };

struct Options {
  size_t num_requests = 24;
  bool is_cached = true;
  bool has_text = false;
  bool has_drafts = false;
  Reader reader = Reader::kNone;
  size_t num_blocks = 4096;
  size_t num_cached = 0;  // tokens of a text that fills the cache before
  SchedulerOptions scheduler = {};
};

// Words as tokens, some with half a stop text.
text::Vocab Words() {
  text::Vocab vocab = text::testing::TinyBpe({});
  for (size_t i = 1; i < 24; i += 2) vocab.tokens[i].text = "wordwordno" + std::to_string(i);
  for (size_t i = 2; i < 24; i += 4) vocab.tokens[i].text = "word" + std::to_string(i) + "no_su";
  return vocab;
}

// Requests that decode together: they have a prefix in common, and then go on by themselves.
class DecodingEngine {
 public:
  explicit DecodingEngine(const Options& options)
      : store_(kv::MakeHostStore(model_check::CopyRows)),
        fake_executor_(&model_,
                       {.vocab_size = model_.vocab_size,
                        .max_positions = kContext,
                        .max_step_tokens = 2048,
                        .groups = model_.groups,
                        .weight_bytes = 0,
                        .scratch_bytes = 0},
                       options.scheduler.step_tokens, &clock_),
        executor_(&fake_executor_),
        fake_proposer_(&model_, /*seed=*/1),
        proposer_(&fake_proposer_),
        tokenizer_(*text::Tokenizer::Create(Words())) {
    kv::KvCacheOptions kv_options;
    kv_options.groups = model_.groups;
    kv_options.budget_bytes = options.num_blocks * model_check::kBlockBytes;
    cache_ = *kv::KvCache::Make(kv_options, store_.get());
    core_ = *Core::Make({.executor = &executor_,
                         .cache = cache_.get(),
                         .clock = &clock_,
                         .tokenizer = options.has_text ? tokenizer_.get() : nullptr,
                         .proposer = options.has_drafts ? &proposer_ : nullptr},
                        options.scheduler, {.max_draft = 3, .adaptive = false});
    if (options.num_cached > 0) Fill(options.num_cached);
    for (uint32_t i = 0; i < options.num_requests; ++i) Submit(options, i);
  }

  ~DecodingEngine() {
    core_.reset();
    home_->finished.clear();
  }

  // A step, whose chunks are read. Returns what that allocated.
  size_t Step() {
    num_allocations = 0;
    is_counting = true;
    const bool has_worked = core_->Step();
    for (const auto& reply : replies_) reply->Next(/*timeout_us=*/0);
    is_counting = false;
    EXPECT_TRUE(has_worked);
    return num_allocations;
  }

  Core& core() { return *core_; }
  const WatchedExecutor& executor() const { return executor_; }
  size_t num_bytes() const {
    size_t sum = 0;
    for (const Listener& listener : listeners_) sum += listener.num_bytes;
    return sum;
  }

 private:
  void Fill(size_t num_tokens) {
    Request request;
    request.tokens.assign(num_tokens, TokenId{23});
    request.max_tokens = 1;
    ASSERT_TRUE(core_->Submit(std::move(request), &listeners_.emplace_back()).ok());
    while (!core_->idle()) Step();
  }

  void Submit(const Options& options, uint32_t index) {
    Request request;
    request.tokens.assign(kPrefix, TokenId{1});
    // Two lengths: blocks begin or end at four steps of sixteen.
    const uint32_t num_own = index % 2 == 0 ? 20 : 27;
    for (uint32_t i = 0; i < num_own; ++i) {
      request.tokens.push_back(TokenId{2 + (i * (index + 1) + index) % 20});
    }
    request.seed = index;
    request.cache.use = request.cache.publish = options.is_cached;
    if (options.has_text) request.stop = {"no_such_text", "never"};
    ReplySink* sink = nullptr;
    if (options.reader == Reader::kNone) {
      sink = &listeners_.emplace_back();
    } else {
      if (options.reader == Reader::kCallback) request.on_chunk = [](const Chunk&) {};
      sink = replies_.emplace_back(std::make_shared<ReplyState>(home_, request, index)).get();
    }
    ASSERT_TRUE(core_->Submit(std::move(request), sink).ok());
  }

  const FakeModel model_{.groups = {model_check::FullGroup()}};
  FakeClock clock_;
  std::unique_ptr<kv::BlockStore> store_;
  FakeExecutor fake_executor_;
  WatchedExecutor executor_;
  FakeProposer fake_proposer_;
  UncountedProposer proposer_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<kv::KvCache> cache_;
  std::deque<Listener> listeners_;
  const std::shared_ptr<ReplyHome> home_ = std::make_shared<ReplyHome>();
  std::vector<std::shared_ptr<ReplyState>> replies_;
  std::unique_ptr<Core> core_;
};

struct Counts {
  size_t quiet_steps = 0;     // in which no block begins or ends
  size_t in_quiet_steps = 0;  // allocations
  size_t blocks = 0;          // that began and ended
  size_t at_blocks = 0;       // allocations in the other steps
  size_t num_evicted = 0;     // blocks
};

size_t NumEvicted(const EngineStats& stats) {
  return std::accumulate(stats.kv.evicted_blocks.begin(), stats.kv.evicted_blocks.end(), size_t{0});
}

Counts CountAllocations(const Options& options) {
  DecodingEngine engine(options);
  for (size_t i = 0; i < kWarmUp; ++i) engine.Step();
  const EngineStats before = engine.core().stats();
  Counts counts;
  size_t num_edges = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    const size_t num = engine.Step();
    const bool is_quiet = engine.executor().num_block_edges == 0;
    counts.quiet_steps += is_quiet ? 1 : 0;
    (is_quiet ? counts.in_quiet_steps : counts.at_blocks) += num;
    num_edges += engine.executor().num_block_edges;
  }
  counts.blocks = num_edges / 2;
  const EngineStats after = engine.core().stats();
  EXPECT_EQ(after.prefilled_tokens, before.prefilled_tokens);  // a steady state
  EXPECT_GE(after.decoded_tokens, before.decoded_tokens + kSteps);
  EXPECT_EQ(after.running, before.running);
  EXPECT_EQ(engine.num_bytes() > 0, options.has_text);
  counts.num_evicted = NumEvicted(after) - NumEvicted(before);
  return counts;
}

struct Case {
  std::string name;
  Options options;
};

class CoreMemoryTest : public testing::TestWithParam<Case> {};

TEST_P(CoreMemoryTest, TokensAllocateNothingAndBlocksLittle) {
  const Options& options = GetParam().options;
  const Counts counts = CountAllocations(options);
  EXPECT_GT(counts.quiet_steps, kSteps / 4);
  EXPECT_EQ(counts.in_quiet_steps, 0u);
  // The lists of a sequence's blocks and of a node's grow by doubling. Publication makes a list of
  // the blocks, too.
  EXPECT_GT(counts.blocks, 50u);
  EXPECT_LE(counts.at_blocks, options.is_cached ? 2 * counts.blocks : counts.blocks / 2);
  EXPECT_EQ(counts.num_evicted > 0, options.num_cached > 0);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CoreMemoryTest,
    testing::Values(
        Case{"Cached", {}},
        // All prompts in one step, though they share nothing.
        Case{"Uncached",
             {.num_requests = 10, .is_cached = false, .scheduler = {.step_tokens = 2048}}},
        Case{"WithText", {.has_text = true}},
        Case{"WithDrafts", {.num_requests = 4, .has_drafts = true}},
        Case{"WithDraftsUncached", {.num_requests = 4, .is_cached = false, .has_drafts = true}},
        Case{"ForACallback", {.reader = Reader::kCallback}},
        Case{"WhileOthersWait", {.scheduler = {.max_running = 12}}},
        Case{"WhileTextIsEvicted", {.num_requests = 6, .num_blocks = 170, .num_cached = 1000}}),
    [](const auto& info) { return info.param.name; });

// A chunk that waits for its reader: its list of tokens, and now and then a piece of the queue.
TEST(CoreMemory, AQueuedChunkTakesLittle) {
  const Options options = {.reader = Reader::kQueue};
  const Counts counts = CountAllocations(options);
  const size_t num_chunks = counts.quiet_steps * options.num_requests;
  EXPECT_GE(counts.in_quiet_steps, num_chunks);
  EXPECT_LE(counts.in_quiet_steps, num_chunks + num_chunks / 2);
}

TEST(CoreMemory, AllocationsAreCounted) {
  num_allocations = 0;
  is_counting = true;
  std::vector<int>(10).swap(*std::make_unique<std::vector<int>>());
  is_counting = false;
  EXPECT_GE(num_allocations, 1u);
}

}  // namespace
}  // namespace kvern::engine
