// The fake model and executor by themselves, on sequences of a real cache.
#include <gtest/gtest.h>

#include "engine/model_check/fake_executor.h"
#include "kvern/kv.h"

namespace kvern::engine::model_check {
namespace {

constexpr size_t kNumBlocks = 40;

std::vector<TokenId> MakeText(size_t num_tokens) {
  std::vector<TokenId> text(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) text[i] = TokenId{static_cast<uint32_t>(i * i % 23)};
  return text;
}

// An engine in its smallest form: one sequence after the other.
class FakeExecutorTest : public testing::TestWithParam<bool> {
 protected:
  FakeExecutorTest() {
    model_.groups = {FullGroup()};
    if (GetParam()) model_.groups.push_back(WindowGroup(20, 4));
    kv::KvCacheOptions options;
    options.groups = model_.groups;
    options.budget_bytes = kNumBlocks * kBlockBytes;
    options.min_slab_bytes = kBlockBytes;
    cache_ = *kv::KvCache::Make(options, store_.get());
    ns_ = *cache_->OpenNamespace({});
    request_.seed = request_.sampling.seed = 7;
    request_.tokens = MakeText(50);
    request_.max_tokens = 30;
    request_.ignore_end = true;
  }

  kv::Sequence Begin(const std::vector<TokenId>& tokens) {
    kv::Lease lease = cache_->Lookup({.ns = ns_, .tokens = tokens, .max_hit = tokens.size() - 1});
    return *cache_->Admit(lease);
  }

  std::vector<PagedView> Views(const kv::Sequence& sequence) const {
    std::vector<PagedView> views;
    for (size_t group = 0; group < model_.groups.size(); ++group) {
      views.push_back(sequence.View(static_cast<kv::GroupId>(group)));
    }
    return views;
  }

  SliceOutput Execute(Slice slice, const kv::Sequence& sequence) {
    const std::vector<PagedView> views = Views(sequence);
    slice.views = views;
    const auto outputs = executor_.Execute({.slices = {slice}, .shared = {}});
    if (outputs.ok()) return (*outputs)[0];
    SliceOutput failed;
    failed.status = outputs.error();
    return failed;
  }

  // Computes what lacks of `tokens`, and samples after it.
  SliceOutput Extend(kv::Sequence& sequence, const std::vector<TokenId>& tokens,
                     size_t num_drafts) {
    const SampleRequest sample = {&request_.sampling, tokens, request_.tokens.size(), 0};
    const size_t first = sequence.length();
    const auto missing = std::span(tokens).subspan(first);
    EXPECT_TRUE(sequence.Append(missing).ok());
    return Execute({.tokens = missing,
                    .first_position = static_cast<uint32_t>(first),
                    .views = {},
                    .num_logits = static_cast<uint32_t>(1 + num_drafts),
                    .sample = &sample},
                   sequence);
  }

  NaiveAnswer RightAnswer() {
    NaiveText prompt(&model_);
    for (const TokenId token : request_.tokens) prompt.Append(token);
    return NaiveAnswer(&request_, &rules_, prompt, 0);
  }

  FakeModel model_;
  EndRules rules_{.end_tokens = {}, .context = 200};
  FakeClock clock_;
  std::unique_ptr<kv::BlockStore> store_ = kv::MakeHostStore(&CopyRows);
  std::unique_ptr<kv::KvCache> cache_;
  kv::NamespaceId ns_{};
  Request request_;
  FakeExecutor executor_{&model_,
                         {.vocab_size = 24,
                          .max_positions = 200,
                          .max_step_tokens = 200,
                          .groups = {},
                          .weight_bytes = 0,
                          .scratch_bytes = 0},
                         200,
                         &clock_};
};

INSTANTIATE_TEST_SUITE_P(Groups, FakeExecutorTest, testing::Bool());

TEST_P(FakeExecutorTest, AnswersThroughTheCacheAreTheRightOnes) {
  for (int round = 0; round < 2; ++round) {  // cold and warm
    std::vector<TokenId> tokens = request_.tokens;
    kv::Sequence sequence = Begin(tokens);
    NaiveAnswer right = RightAnswer();
    while (const auto expected = right.Next()) {
      const SliceOutput output = Extend(sequence, tokens, 0);
      ASSERT_EQ(output.tokens.size(), 1u);
      EXPECT_EQ(output.tokens[0].id, expected->id);
      EXPECT_EQ(output.tokens[0].logprob, expected->logprob);
      sequence.Commit(sequence.length());
      tokens.push_back(expected->id);
    }
    EXPECT_EQ(right.finish(), FinishReason::kLength);
    EXPECT_EQ(tokens.size(), 80u);
  }
}

TEST_P(FakeExecutorTest, DraftsAreAcceptedAsFarAsTheyAreRight) {
  std::vector<TokenId> tokens = request_.tokens;
  NaiveAnswer right = RightAnswer();
  std::vector<TokenId> answer;
  for (int i = 0; i < 4; ++i) answer.push_back(right.Next()->id);
  tokens.insert(tokens.end(), answer.begin(), answer.begin() + 2);
  tokens.push_back(TokenId{(static_cast<uint32_t>(answer[2]) + 1) % 24});  // a wrong one
  kv::Sequence sequence = Begin(request_.tokens);
  const SliceOutput output = Extend(sequence, tokens, 3);
  ASSERT_EQ(output.tokens.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(output.tokens[i].id, answer[i]);
  EXPECT_EQ(executor_.counts().accepted, 2u);
}

TEST_P(FakeExecutorTest, AWrongBitBelowChangesTheAnswerAndTheSelfCheck) {
  kv::Sequence sequence = Begin(request_.tokens);
  const SliceOutput good = Extend(sequence, request_.tokens, 0);
  sequence.Commit(50);
  const SampleRequest sample = {&request_.sampling, request_.tokens, 50, 0};
  const Slice again = {.tokens = std::span(request_.tokens).last(1),
                       .first_position = 49,
                       .views = {},
                       .num_logits = 1,
                       .sample = &sample,
                       .query_only = true};
  const SliceOutput same = Execute(again, sequence);
  EXPECT_FALSE(same.stored_differs);
  EXPECT_EQ(same.tokens[0].logprob, good.tokens[0].logprob);
  const PagedView view = sequence.View(kv::GroupId{0});
  for (const size_t position : {0, 20, 48}) {
    SetRow(view, position, RowAt(view, position) ^ 2);
    const SliceOutput other = Execute(again, sequence);
    EXPECT_TRUE(other.stored_differs) << position;
    EXPECT_NE(other.tokens[0].logprob, good.tokens[0].logprob) << position;
    SetRow(view, position, RowAt(view, position) ^ 2);
  }
}

TEST_P(FakeExecutorTest, PlannedFaultsHitOneStep) {
  kv::Sequence sequence = Begin(request_.tokens);
  executor_.FailStep();
  EXPECT_EQ(Extend(sequence, request_.tokens, 0).status.error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(sequence.Truncate(0).ok());
  executor_.FailSlice(3);
  EXPECT_EQ(Extend(sequence, request_.tokens, 0).status.error().code, ErrorCode::kNonFinite);
  ASSERT_TRUE(sequence.Truncate(0).ok());
  EXPECT_EQ(Extend(sequence, request_.tokens, 0).tokens[0].id, RightAnswer().Next()->id);
}

using FakeExecutorDeathTest = FakeExecutorTest;
INSTANTIATE_TEST_SUITE_P(Groups, FakeExecutorDeathTest, testing::Bool());

TEST_P(FakeExecutorDeathTest, PlansThatBreakTheRulesAreFindings) {
  kv::Sequence sequence = Begin(request_.tokens);
  ASSERT_TRUE(sequence.Append(request_.tokens).ok());
  const Slice late = {.tokens = std::span(request_.tokens).last(1),
                      .first_position = 49,
                      .views = {},
                      .num_logits = 1};
  EXPECT_DEATH(Execute(late, sequence), "never written");
  const std::vector<PagedView> views = Views(sequence);
  const Slice whole = {.tokens = request_.tokens, .first_position = 0, .views = views};
  EXPECT_DEATH((void)executor_.Execute({.slices = {whole, whole}, .shared = {}}), "write the same");
  const uint32_t indices[] = {0};
  StepPlan shared;
  shared.slices = {whole};
  shared.shared = {{indices, 1}};
  EXPECT_DEATH((void)executor_.Execute(shared), "shares 1 chunks");
}

}  // namespace
}  // namespace kvern::engine::model_check
