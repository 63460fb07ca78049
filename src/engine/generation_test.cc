// The generation loop on a fake executor that follows a rule: the token after n is n + 1 (mod 50),
// counted only if every row before it was computed.
#include "engine/generation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "kv/block_store.h"

namespace kvern::engine {
namespace {

constexpr uint32_t kVocab = 50;
constexpr size_t kBlockBytes = 64 * kBlockTokens;

// Writes each token's id into its row and checks that all rows before a slice hold their tokens.
class FakeExecutor final : public Executor {
 public:
  const ExecutorInfo& info() const override { return info_; }

  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    outputs_.clear();
    for (const Slice& slice : plan.slices) {
      outputs_.push_back(RunSlice(slice));
      ++num_steps;
    }
    return std::span<const SliceOutput>(outputs_);
  }

  int num_steps = 0;
  std::optional<uint32_t> fail_at_position;

 private:
  static uint32_t* Row(const Slice& slice, uint32_t position) {
    std::byte* block = slice.views[0].blocks[position / kBlockTokens];
    return reinterpret_cast<uint32_t*>(block + position % kBlockTokens * 64);
  }

  SliceOutput RunSlice(const Slice& slice) {
    SliceOutput output;
    uint32_t position = slice.first_position;
    for (uint32_t earlier = 0; earlier < position; ++earlier) {
      EXPECT_NE(*Row(slice, earlier), 0u) << "row " << earlier << " was never computed";
    }
    for (const TokenId token : slice.tokens) {
      if (fail_at_position == position) {
        output.status = Errorf(ErrorCode::kNonFinite, "made to fail");
        return output;
      }
      *Row(slice, position++) = static_cast<uint32_t>(token) + 1;
    }
    if (slice.sample != nullptr) {
      EXPECT_EQ(slice.sample->history.size(), position);
      const auto next = (static_cast<uint32_t>(slice.tokens.back()) + 1) % kVocab;
      output.tokens = {SampledToken{TokenId{next}, 0.0f, {}}};
      output.logits.emplace_back(logits_);
    }
    return output;
  }

  const ExecutorInfo info_ = {kVocab, 1000, 1000, {{.block_bytes = kBlockBytes}}, 0, 0};
  std::vector<float> logits_ = std::vector<float>(kVocab);
  std::vector<SliceOutput> outputs_;
};

std::vector<TokenId> Tokens(std::initializer_list<uint32_t> ids) {
  std::vector<TokenId> tokens;
  for (const uint32_t id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

GenerationRequest Request(std::initializer_list<uint32_t> prompt,
                          std::optional<size_t> max_new_tokens = std::nullopt) {
  GenerationRequest request;
  request.prompt = Tokens(prompt);
  request.max_new_tokens = max_new_tokens;
  return request;
}

class GenerationTest : public testing::Test {
 protected:
  Generation Make(std::string_view strategy, size_t context, size_t chunk = 100) {
    GenerationOptions options;
    options.strategy = *kv::FindStrategy(strategy);
    options.cache = {.cache = cache_.get(),
                     .store = &store_,
                     .ns = cache_->OpenNamespace({}).value(),
                     .group = {},
                     .max_tokens = context,
                     .on_event = {}};
    options.token_bytes = 64;
    options.prefill_chunk = chunk;
    options.end_tokens = Tokens({7, 20});
    options.on_step = [this](const StepTrace& trace) { traces_.push_back(trace); };
    return Generation(&executor_, options);
  }

  static std::vector<TokenId> Finish(Generation& generation) {
    std::vector<TokenId> reply;
    while (!generation.finish_reason()) {
      const auto token = generation.Step();
      EXPECT_TRUE(token.ok());
      if (!token.ok()) break;
      if (token->has_value()) reply.push_back((*token)->id);
    }
    return reply;
  }

  std::unique_ptr<kv::KvCache> MakeCache() {
    kv::KvCacheOptions options;
    options.groups = {{.block_bytes = kBlockBytes}};
    options.budget_bytes = 100 * kBlockBytes;
    return kv::KvCache::Make(std::move(options), &store_).value();
  }

  FakeExecutor executor_;
  kv::HostBlockStore store_{[](kv::GroupId, std::byte* to, const std::byte* from,
                               uint32_t num_tokens) { std::memcpy(to, from, num_tokens * 64); }};
  std::unique_ptr<kv::KvCache> cache_ = MakeCache();
  std::vector<StepTrace> traces_;
};

TEST_F(GenerationTest, EveryStrategyAndChunkGivesTheSameReply) {
  for (const kv::Strategy& strategy : kv::Strategies()) {
    for (const size_t chunk : {1u, 2u, 3u, 100u}) {
      SCOPED_TRACE(testing::Message() << strategy.name << " chunk " << chunk);
      Generation generation = Make(strategy.name, 200, chunk);
      ASSERT_TRUE(generation.Start(Request({9, 8, 14, 15, 15})).ok());
      EXPECT_EQ(Finish(generation), Tokens({16, 17, 18, 19, 20}));
      EXPECT_EQ(generation.finish_reason(), FinishReason::kStop);
      EXPECT_EQ(generation.tokens().size(), 9u);
    }
  }
}

TEST_F(GenerationTest, LengthEndsAtTheLimitOrTheContext) {
  Generation generation = Make("paged", 10);
  ASSERT_TRUE(generation.Start(Request({21, 22}, 3)).ok());
  EXPECT_EQ(Finish(generation).size(), 3u);
  EXPECT_EQ(generation.finish_reason(), FinishReason::kLength);
  ASSERT_TRUE(generation.Start(Request({21, 22})).ok());
  EXPECT_EQ(Finish(generation).size(), 9u);  // the last one fills no row
  EXPECT_EQ(generation.finish_reason(), FinishReason::kLength);
}

TEST_F(GenerationTest, WhatDoesNotFitIsRefusedWithTheNumbers) {
  Generation generation = Make("paged", 4);
  EXPECT_EQ(generation.Start(Request({1, 2, 3, 4, 5})).error().message,
            "the prompt has 5 tokens, but the context is 4: shorten it or raise -c");
  EXPECT_EQ(generation.Start(Request({1, 2}, 3)).error().message,
            "2 prompt tokens and -n 3 exceed the context of 4: lower -n or raise -c");
  EXPECT_FALSE(generation.Start({}).ok());
}

TEST_F(GenerationTest, AFollowUpKeepsTheCommonPrefix) {
  for (const kv::Strategy& strategy : kv::Strategies()) {
    SCOPED_TRACE(strategy.name);
    Generation generation = Make(strategy.name, 200);
    ASSERT_TRUE(generation.Start(Request({1, 2, 17})).ok());
    EXPECT_EQ(Finish(generation), Tokens({18, 19, 20}));  // rows of 1 2 17 18 19 are computed
    ASSERT_TRUE(generation.Start(Request({1, 2, 17, 18, 4, 4})).ok());
    EXPECT_EQ(generation.num_kept_tokens(), strategy.recomputes_history ? 0u : 4u);
    EXPECT_EQ(Finish(generation), Tokens({5, 6, 7}));
    // The same prompt again: its last token is computed for its logits.
    ASSERT_TRUE(generation.Start(Request({1, 2}, 1)).ok());
    EXPECT_EQ(generation.num_kept_tokens(), strategy.recomputes_history ? 0u : 1u);
    EXPECT_EQ(Finish(generation), Tokens({3}));
  }
}

TEST_F(GenerationTest, AnEarlierTextIsFoundAgain) {
  Generation generation = Make("paged", 200);
  const auto kept = [&](std::initializer_list<uint32_t> prompt) {
    EXPECT_TRUE(generation.Start(Request(prompt)).ok());
    Finish(generation);
    return generation.num_kept_tokens();
  };
  EXPECT_EQ(kept({1, 2, 17}), 0u);         // and its reply 18 19 (20)
  EXPECT_EQ(kept({1, 2, 30, 4, 16}), 2u);  // edited
  EXPECT_EQ(kept({1, 2, 17}), 2u);         // edited back: all but its last token
  EXPECT_EQ(kept({1, 2, 30, 4, 16}), 4u);  // and forth
  EXPECT_EQ(kept({1, 2, 17, 18, 19, 5}), 5u);
  cache_->CheckInvariants();
}

TEST_F(GenerationTest, AFailedStepLeavesTheSequenceAsItWas) {
  Generation generation = Make("paged", 200);
  ASSERT_TRUE(generation.Start(Request({1, 2, 17})).ok());
  executor_.fail_at_position = 4;
  ASSERT_TRUE(generation.Step().ok());
  ASSERT_TRUE(generation.Step().ok());
  const auto failed = generation.Step();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kNonFinite);
  EXPECT_EQ(generation.num_computed(), 4u);
  executor_.fail_at_position.reset();
  EXPECT_EQ(Finish(generation), Tokens({20}));
}

TEST_F(GenerationTest, TracesCountEveryRow) {
  Generation generation = Make("paged", 200, /*chunk=*/4);
  ASSERT_TRUE(generation.Start(Request({1, 2, 3, 4, 5, 17})).ok());
  Finish(generation);
  ASSERT_EQ(traces_.size(), 4u);
  EXPECT_EQ(traces_[0].num_tokens, 4u);
  EXPECT_EQ(traces_[1].num_tokens, 2u);
  EXPECT_EQ(traces_[1].kind, StepTrace::Kind::kPrefill);
  EXPECT_EQ(traces_[2].kind, StepTrace::Kind::kDecode);
  EXPECT_EQ(traces_[2].num_rows_read, 6u);
  EXPECT_EQ(traces_[2].bytes_written, 64u);
  EXPECT_EQ(traces_[3].bytes_read, 7u * 64);
  EXPECT_EQ(traces_[3].bytes_allocated, kBlockBytes);
}

}  // namespace
}  // namespace kvern::engine
