// Steps of a steady state allocate nothing. A program of its own: it counts every operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/counted_new.h"
#include "engine/exec/exec_test_util.h"
#include "engine/shared_groups.h"

namespace kvern::engine {
namespace {

constexpr size_t kPrompt = 260;
constexpr size_t kSequences = 8;

// Sequences of one prompt that all decode in one batch, in a shared group.
class StepMemoryTest : public testing::TestWithParam<size_t> {
 protected:
  StepMemoryTest() : model_(model::GoldenModelSpec(), {.num_threads = GetParam()}) {
    auto prompt = model_.MakeCache();
    const auto tokens = RandomTokens(1, kPrompt, model_.vocab_size());
    model_.Append(*prompt, tokens, 100);
    for (size_t i = 0; i < kSequences; ++i) {
      caches_.push_back(std::move(*prompt->Fork()));
      histories_.push_back(tokens);
    }
    params_.resize(kSequences);
    requests_.resize(kSequences);
    views_.resize(kSequences);
  }

  // Every sequence's next token, and num_drafts_ behind it that are taken back whatever is sampled.
  // What the caches allocate is not counted.
  size_t AllocationsOfStep() {
    plan_.slices.clear();
    for (size_t i = 0; i < kSequences; ++i) {
      std::vector<TokenId>& history = histories_[i];
      history.resize(history.size() + num_drafts_, TokenId{1});
      EXPECT_TRUE(caches_[i]->Extend(history.size() - caches_[i]->length()).ok());
      views_[i] = caches_[i]->View();
      requests_[i] = {&params_[i], history, kPrompt, 0};
      const size_t count = 1 + num_drafts_;
      plan_.slices.push_back({.tokens = std::span(history).last(count),
                              .first_position = static_cast<uint32_t>(history.size() - count),
                              .views = {&views_[i], 1},
                              .num_logits = static_cast<uint32_t>(count),
                              .sample = &requests_[i]});
    }
    const size_t before = num_allocations.load();
    groups_.Find(plan_.slices, plan_.shared);
    const auto outputs = model_.executor().Execute(plan_);
    const size_t allocations = num_allocations.load() - before;
    EXPECT_TRUE(outputs.ok());
    EXPECT_EQ(plan_.shared.size(), 1u);
    for (size_t i = 0; i < kSequences; ++i) {
      histories_[i].resize(histories_[i].size() - num_drafts_);
      caches_[i]->Truncate(histories_[i].size());
      histories_[i].push_back((*outputs)[i].tokens.at(0).id);
    }
    return allocations;
  }

  // Of ten steps, after a few.
  size_t AllocationsOfSteadyState() {
    for (auto& history : histories_) history.push_back(TokenId{1});
    for (int i = 0; i < 3; ++i) AllocationsOfStep();
    size_t allocations = 0;
    for (int i = 0; i < 10; ++i) allocations += AllocationsOfStep();
    return allocations;
  }

  void UseManyParams() {
    for (size_t i = 0; i < kSequences; ++i) {
      params_[i].seed = i;
      params_[i].top_k = i % 2 == 0 ? 0 : 40;
      params_[i].top_p = i % 3 == 0 ? 1.0f : 0.9f;
      params_[i].repetition_penalty = 1.1f;
      params_[i].frequency_penalty = 0.1f;
      params_[i].num_logprobs = static_cast<int32_t>(i % 4);
    }
  }

  TestModel model_;
  std::vector<std::unique_ptr<kv::SequenceCache>> caches_;
  std::vector<std::vector<TokenId>> histories_;
  std::vector<SamplingParams> params_;
  std::vector<SampleRequest> requests_;
  std::vector<PagedView> views_;
  size_t num_drafts_ = 0;
  StepPlan plan_;
  SharedGroups groups_;
};

INSTANTIATE_TEST_SUITE_P(Threads, StepMemoryTest, testing::Values(1, 2));

TEST_P(StepMemoryTest, GreedyStepsAllocateNothing) {
  for (SamplingParams& params : params_) params.temperature = 0;
  EXPECT_EQ(AllocationsOfSteadyState(), 0u);
}

TEST_P(StepMemoryTest, SampledStepsAllocateNothing) {
  UseManyParams();
  EXPECT_EQ(AllocationsOfSteadyState(), 0u);
}

TEST_P(StepMemoryTest, VerifyingDraftsAllocatesNothing) {
  UseManyParams();
  num_drafts_ = 3;
  EXPECT_EQ(AllocationsOfSteadyState(), 0u);
}

TEST_P(StepMemoryTest, CountsWhatIsAllocated) {
  const size_t before = num_allocations.load();
  std::vector<int>(GetParam()).swap(*std::make_unique<std::vector<int>>());
  EXPECT_GE(num_allocations.load() - before, 1u);
}

}  // namespace
}  // namespace kvern::engine
