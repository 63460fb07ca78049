// Slices of one batch: each is sampled, verified and failed as if it were alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/exec/exec_test_util.h"

namespace kvern::engine {
namespace {

constexpr size_t kPrompt = 260;
constexpr TokenId kInfinite{5};

// Its first matrix, the embedding, is of floats: so a token can be infinite.
model::GoldenModelSpec Spec() {
  model::GoldenModelSpec spec;
  spec.types = {compute::QuantType::kF32, compute::QuantType::kQ8_0};
  spec.vocab_size = 300;
  spec.infinite_token = kInfinite;
  return spec;
}

std::vector<TokenId> FiniteTokens(uint64_t seed, size_t count) {
  auto tokens = RandomTokens(seed, count, Spec().vocab_size);
  std::replace(tokens.begin(), tokens.end(), kInfinite, TokenId{6});
  return tokens;
}

SamplingParams Params(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.temperature = seed % 3 == 0 ? 0.0f : 1.5f;
  params.top_k = seed % 2 == 0 ? 0 : 40;
  params.repetition_penalty = seed % 4 == 1 ? 1.3f : 1.0f;
  params.presence_penalty = seed % 5 == 2 ? 0.5f : 0.0f;
  params.num_logprobs = static_cast<int32_t>(seed % 4);
  params.logit_bias = {{kInfinite, -1000.0f}};
  return params;
}

// A fork of one prompt, with the tokens that it goes on with and its way of sampling.
struct Branch {
  Branch(kv::SequenceCache& prompt, std::span<const TokenId> prompt_tokens,
         std::vector<TokenId> next, uint64_t seed)
      : cache(std::move(*prompt.Fork())),
        history(prompt_tokens.begin(), prompt_tokens.end()),
        params(Params(seed)) {
    EXPECT_TRUE(cache->Extend(next.size()).ok());
    view = cache->View();
    history.insert(history.end(), next.begin(), next.end());
    num_next = next.size();
    sample = {&params, history, kPrompt - 20, static_cast<uint32_t>(seed % 3)};
  }

  Slice slice() const {
    const auto tokens = std::span(history).last(num_next);
    return {.tokens = tokens,
            .first_position = kPrompt,
            .views = {&view, 1},
            .num_logits = static_cast<uint32_t>(num_next),
            .sample = &sample};
  }

  std::unique_ptr<kv::SequenceCache> cache;
  std::vector<TokenId> history;
  size_t num_next;
  SamplingParams params;
  PagedView view;
  SampleRequest sample;
};

bool SameTokens(std::span<const SampledToken> a, std::span<const SampledToken> b) {
  const auto same_logprob = [](float x, float y) { return std::memcmp(&x, &y, sizeof(x)) == 0; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const SampledToken& x, const SampledToken& y) {
                      return x.id == y.id && same_logprob(x.logprob, y.logprob) &&
                             std::equal(x.top.begin(), x.top.end(), y.top.begin(), y.top.end(),
                                        [&](const TokenLogprob& p, const TokenLogprob& q) {
                                          return p.id == q.id && same_logprob(p.logprob, q.logprob);
                                        });
                    });
}

class BatchTest : public testing::TestWithParam<size_t> {
 protected:
  BatchTest() : model_(Spec(), {.num_threads = GetParam()}), prompt_(model_.MakeCache()) {
    prompt_tokens_ = FiniteTokens(1, kPrompt);
    model_.Append(*prompt_, prompt_tokens_, 100);
  }

  void AddBranch(std::vector<TokenId> next, uint64_t seed) {
    branches_.push_back(std::make_unique<Branch>(*prompt_, prompt_tokens_, std::move(next), seed));
  }

  // Outputs of one step, whose logits are valid until the next.
  std::vector<SliceOutput> Run(const StepPlan& plan) {
    const auto outputs = model_.executor().Execute(plan);
    EXPECT_TRUE(outputs.ok());
    return {outputs->begin(), outputs->end()};
  }
  SliceOutput RunAlone(const Branch& branch) {
    StepPlan plan;
    plan.slices = {branch.slice()};
    return Run(plan)[0];
  }

  TestModel model_;
  std::vector<TokenId> prompt_tokens_;
  std::unique_ptr<kv::SequenceCache> prompt_;
  std::vector<std::unique_ptr<Branch>> branches_;
};

INSTANTIATE_TEST_SUITE_P(Threads, BatchTest, testing::Values(1, 2, 4));

TEST_P(BatchTest, IsSampledAsEachAlone) {
  for (uint64_t seed = 0; seed < 12; ++seed) AddBranch(FiniteTokens(10 + seed, 1), seed);
  std::vector<SliceOutput> expected;
  for (const auto& branch : branches_) expected.push_back(RunAlone(*branch));
  // Ever fewer slices, then all again: what larger batches left behind must not matter.
  for (const size_t count : {12u, 7u, 2u, 12u}) {
    StepPlan plan;
    for (size_t i = 0; i < count; ++i) plan.slices.push_back(branches_[i]->slice());
    const auto outputs = Run(plan);
    ASSERT_EQ(outputs.size(), count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(outputs[i].tokens.size(), 1u);
      EXPECT_EQ(outputs[i].tokens[0].top.size(), i % 4);
      EXPECT_TRUE(SameTokens(outputs[i].tokens, expected[i].tokens)) << i;
    }
  }
}

// Drafts that the sampler agrees with for a while: it says what it says one token at a time.
TEST_P(BatchTest, DraftsAreVerifiedUpToTheFirstThatDiffers) {
  constexpr size_t kDrafts = 6;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    // Token by token.
    std::vector<TokenId> said = FiniteTokens(30 + seed, 1);
    std::vector<SampledToken> expected;
    while (expected.size() <= kDrafts) {
      const Branch branch(*prompt_, prompt_tokens_, said, seed);
      Slice slice = branch.slice();
      slice.num_logits = 1;
      StepPlan plan;
      plan.slices = {slice};
      const auto outputs = Run(plan);
      ASSERT_EQ(outputs[0].tokens.size(), 1u);
      expected.push_back(outputs[0].tokens[0]);
      said.push_back(expected.back().id);
    }
    said.pop_back();
    // All at once, with the first wrong draft at every place.
    for (size_t num_right = 0; num_right <= kDrafts; ++num_right) {
      std::vector<TokenId> drafts = said;
      if (num_right < kDrafts) {
        TokenId& wrong = drafts[1 + num_right];
        wrong = wrong == TokenId{7} ? TokenId{8} : TokenId{7};
      }
      AddBranch(drafts, seed);
    }
    StepPlan plan;
    for (const auto& branch : branches_) plan.slices.push_back(branch->slice());
    const auto outputs = Run(plan);
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(outputs[i].status.ok());
      EXPECT_TRUE(SameTokens(outputs[i].tokens, std::span(expected).first(i + 1)))
          << "seed " << seed << ", " << i << " right drafts";
    }
    branches_.clear();
  }
}

// Infinite tokens in the middle of groups: a decode, drafts and a query-only slice fail; the bits
// of all others are as they are alone.
TEST_P(BatchTest, FailuresAreAlone) {
  constexpr size_t kBad[] = {1, 3, 5};
  AddBranch({TokenId{7}}, 1);
  AddBranch({kInfinite}, 2);
  AddBranch({TokenId{8}, TokenId{9}, TokenId{10}}, 3);
  AddBranch({TokenId{8}, kInfinite, TokenId{10}}, 4);
  AddBranch({prompt_tokens_.back()}, 5);  // query-only, the prompt's last token
  AddBranch({kInfinite}, 6);              // query-only
  AddBranch({TokenId{11}}, 7);
  const auto slice = [this](size_t i) {
    Slice result = branches_[i]->slice();
    if (i == 4 || i == 5) {
      result.query_only = true;
      result.first_position = kPrompt - 1;
    }
    return result;
  };
  const auto is_bad = [&](size_t i) { return std::ranges::count(kBad, i) > 0; };

  std::vector<SliceOutput> expected(branches_.size());
  std::vector<Logits> expected_logits(branches_.size());
  for (size_t i = 0; i < branches_.size(); ++i) {
    if (is_bad(i)) continue;
    StepPlan plan;
    plan.slices = {slice(i)};
    expected_logits[i] = model_.Execute(plan)[0];
    expected[i] = Run(plan)[0];
  }
  const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6}, front[] = {0, 1, 2}, back[] = {3, 4, 5};
  const std::vector<SharedPrefix> groupings[] = {{}, {{all, 2}}, {{front, 2}, {back, 1}}};
  for (const auto& groups : groupings) {
    StepPlan plan;
    for (size_t i = 0; i < branches_.size(); ++i) plan.slices.push_back(slice(i));
    plan.shared = groups;
    const auto outputs = Run(plan);
    for (size_t i = 0; i < branches_.size(); ++i) {
      ASSERT_EQ(outputs[i].status.ok(), !is_bad(i)) << i;
      if (is_bad(i)) {
        EXPECT_EQ(outputs[i].status.error().code, ErrorCode::kNonFinite);
        EXPECT_TRUE(outputs[i].tokens.empty());
        continue;
      }
      Logits logits;
      for (const auto& row : outputs[i].logits) logits.insert(logits.end(), row.begin(), row.end());
      EXPECT_TRUE(SameBits(logits, expected_logits[i])) << i;
      EXPECT_TRUE(SameTokens(outputs[i].tokens, expected[i].tokens)) << i;
      EXPECT_FALSE(outputs[i].stored_differs);
    }
  }
}

}  // namespace
}  // namespace kvern::engine
