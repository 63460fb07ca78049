// Sampling against a reference that ranks everything, against exact distributions, and for purity.
#include "compute/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/isa.h"

namespace kvern::compute {
namespace {

using Logits = std::vector<float>;
using Tokens = std::vector<TokenId>;

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Temperature 1 and no cut.
SamplingParams Plain() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

// All tests go through one sampler an instruction set: what earlier calls left must not matter.
Result<SampledToken> Sample(const RowKernels& rows, std::span<const float> logits,
                            const SamplingParams& params, const SamplingHistory& history,
                            SampleKey key) {
  static std::map<const RowKernels*, Sampler> samplers;
  SampledToken token;
  const Status status = samplers.try_emplace(&rows, &rows, 100)
                            .first->second.Sample(logits, params, history, key, token);
  if (!status.ok()) return status.error();
  return token;
}

SampledToken SampleOrDie(const Logits& logits, const SamplingParams& params,
                         const SamplingHistory& history = {}, SampleKey key = {}) {
  EXPECT_TRUE(ValidateSamplingParams(params, logits.size()).ok());
  return Sample(kScalarRows, logits, params, history, key).value();
}

uint32_t SampledId(const Logits& logits, const SamplingParams& params,
                   const SamplingHistory& history = {}, SampleKey key = {}) {
  return static_cast<uint32_t>(SampleOrDie(logits, params, history, key).id);
}

Tokens Ids(std::initializer_list<uint32_t> ids) {
  Tokens tokens;
  for (const uint32_t id : ids) tokens.push_back(TokenId{id});
  return tokens;
}

// --- The reference: everything ranked, one candidate at a time ---

struct Ranked {
  float logit;
  uint32_t id;
  uint64_t weight;
};

uint32_t ReferenceDraw(const Logits& logits, const SamplingParams& params, SampleKey key) {
  std::vector<Ranked> ranked;
  for (uint32_t i = 0; i < logits.size(); ++i) ranked.push_back({logits[i], i, 0});
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.logit > b.logit; });
  if (params.temperature == 0) return ranked[0].id;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < ranked.size()) {
    ranked.resize(static_cast<size_t>(params.top_k));
  }
  uint64_t total = 0;
  for (Ranked& r : ranked) {
    float weight = (r.logit - ranked[0].logit) / params.temperature;
    kScalarRows.exp(&weight, 1, &weight);
    r.weight = static_cast<uint64_t>(weight * 0x1p40);
    total += r.weight;
  }
  const double needed = std::ceil(double{params.top_p} * static_cast<double>(total));
  uint64_t sum = 0;
  size_t num_kept = 0;
  while (num_kept < ranked.size() && (params.top_p == 1 || sum < static_cast<uint64_t>(needed))) {
    sum += ranked[num_kept++].weight;
  }
  ranked.resize(num_kept);
  std::erase_if(ranked, [&](const Ranked& r) {
    return static_cast<double>(r.weight) < double{params.min_p} * 0x1p40;
  });
  sum = 0;
  for (const Ranked& r : ranked) sum += r.weight;
  std::sort(ranked.begin(), ranked.end(),
            [](const Ranked& a, const Ranked& b) { return a.id < b.id; });
  const auto words = Philox4x32({key.position, key.completion_index, key.draw, 0},
                                {static_cast<uint32_t>(params.seed), uint32_t(params.seed >> 32)});
  const uint64_t random = uint64_t{words[1]} << 32 | words[0];
  auto left = static_cast<uint64_t>(static_cast<unsigned __int128>(random) * sum >> 64);
  size_t i = 0;
  while (left >= ranked[i].weight) left -= ranked[i++].weight;
  return ranked[i].id;
}

Logits RandomLogits(SplitMix64& random, size_t n) {
  Logits logits(n);
  const bool coarse = random.Below(2) == 0;  // many ties
  for (float& logit : logits) {
    const double x = random.Uniform() * 16 - 8;
    logit = static_cast<float>(coarse ? std::round(x) : x);
  }
  return logits;
}

SamplingParams RandomParams(SplitMix64& random) {
  SamplingParams params = Plain();
  const float temperatures[] = {0, 0.01f, 0.7f, 1, 3, 1e30f};
  params.temperature = temperatures[random.Below(6)];
  const int32_t ks[] = {-1, 0, 1, 2, 7, 40, 1000};
  params.top_k = ks[random.Below(7)];
  const float ps[] = {1, 0.95f, 0.5f, 1e-6f};
  params.top_p = ps[random.Below(4)];
  const float min_ps[] = {0, 0.05f, 0.5f, 1};
  params.min_p = min_ps[random.Below(4)];
  params.seed = random.Next();
  params.num_logprobs = static_cast<int32_t>(random.Below(4));
  return params;
}

TEST(SamplingTest, EqualsTheReferenceOnEveryInstructionSet) {
  constexpr uint64_t kSeed = 31;
  SplitMix64 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    const Logits logits = RandomLogits(random, 1 + random.Below(round % 50 == 0 ? 3000 : 100));
    SamplingParams params = RandomParams(random);
    params.num_logprobs = std::min(params.num_logprobs, static_cast<int32_t>(logits.size()));
    const SampleKey key = {static_cast<uint32_t>(random.Below(3)),
                           static_cast<uint32_t>(random.Below(1000)), 0};
    const uint32_t expected = ReferenceDraw(logits, params, key);
    const SampledToken scalar = SampleOrDie(logits, params, {}, key);
    ASSERT_EQ(static_cast<uint32_t>(scalar.id), expected)
        << "seed " << kSeed << ", round " << round;
    for (const Isa& isa : Isas()) {
      if (!isa.supported()) continue;
      const SampledToken token = Sample(*isa.rows, logits, params, {}, key).value();
      ASSERT_EQ(token.id, scalar.id) << isa.name << ", seed " << kSeed << ", round " << round;
      ASSERT_EQ(std::memcmp(&token.logprob, &scalar.logprob, sizeof(float)), 0) << isa.name;
      ASSERT_EQ(token.top.size(), static_cast<size_t>(params.num_logprobs));
      for (size_t i = 0; i < token.top.size(); ++i) {
        ASSERT_EQ(std::memcmp(&token.top[i], &scalar.top[i], sizeof(TokenLogprob)), 0) << isa.name;
      }
    }
  }
}

// --- Distributions ---

// Chi-square of draws at positions 0 … num_draws - 1 against the probabilities.
double ChiSquare(const Logits& logits, const SamplingParams& params,
                 const std::vector<double>& probability) {
  constexpr uint32_t kNumDraws = 10'000;
  const RowKernels& rows = *SelectIsa("auto").value()->rows;
  std::vector<double> counts(logits.size(), 0);
  for (uint32_t position = 0; position < kNumDraws; ++position) {
    const SampleKey key = {.completion_index = 2, .position = position};
    ++counts[static_cast<uint32_t>(Sample(rows, logits, params, {}, key)->id)];
  }
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probability[i] * kNumDraws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was cut";
    } else {
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return sum;
}

// Probabilities at `temperature` of the tokens that `keep` lists.
std::vector<double> Softmax(const Logits& logits, double temperature,
                            const std::vector<int>& keep) {
  std::vector<double> probability(logits.size(), 0);
  double sum = 0;
  for (const int i : keep) sum += probability[i] = std::exp(logits[i] / temperature);
  for (double& p : probability) p /= sum;
  return probability;
}

// 20.5 is the 99.9 % point of five degrees of freedom; the seeds are fixed.
TEST(SamplingTest, DrawsFollowTheDistribution) {
  const Logits logits = {1.0f, 2.0f, 0.5f, -1.0f, 2.5f, 0.0f};
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  for (const uint64_t seed : {1u, 2u}) {
    SamplingParams params = Plain();
    params.seed = seed;
    EXPECT_LT(ChiSquare(logits, params, Softmax(logits, 1, all)), 20.5) << "seed " << seed;

    params.temperature = 0.6f;
    EXPECT_LT(ChiSquare(logits, params, Softmax(logits, 0.6, all)), 20.5) << "seed " << seed;

    params.top_k = 3;
    EXPECT_LT(ChiSquare(logits, params, Softmax(logits, 0.6, {0, 1, 4})), 13.9) << "seed " << seed;

    // At temperature 1 the probabilities are .49 .30 .11 .07 .04 .01 in order.
    params = Plain();
    params.seed = seed;
    params.top_p = 0.85f;
    EXPECT_LT(ChiSquare(logits, params, Softmax(logits, 1, {0, 1, 4})), 13.9) << "seed " << seed;

    params.top_p = 1;
    params.min_p = 0.1f;  // of .49
    EXPECT_LT(ChiSquare(logits, params, Softmax(logits, 1, {0, 1, 2, 4})), 16.3) << "seed " << seed;
  }
}

TEST(SamplingTest, DrawsDependOnTheWholeKey) {
  const Logits logits(1000, 0.0f);
  SamplingParams params = Plain();
  params.seed = 7;
  const uint32_t base = SampledId(logits, params, {}, {1, 2, 0});
  EXPECT_EQ(SampledId(logits, params, {}, {1, 2, 0}), base);
  EXPECT_NE(SampledId(logits, params, {}, {0, 2, 0}), base);
  EXPECT_NE(SampledId(logits, params, {}, {1, 3, 0}), base);
  EXPECT_NE(SampledId(logits, params, {}, {1, 2, 1}), base);
  params.seed += uint64_t{1} << 32;
  EXPECT_NE(SampledId(logits, params, {}, {1, 2, 0}), base);
}

// --- Order, penalties, bias ---

TEST(SamplingTest, TiesGoToTheLowestId) {
  EXPECT_EQ(SampledId({0, 3, 1, 3, 3}, Greedy()), 1u);
  EXPECT_EQ(SampledId({-0.0f, 0.0f}, Greedy()), 0u);
  SamplingParams params = Plain();
  params.top_k = 1;
  EXPECT_EQ(SampledId({0, 3, 1, 3, 3}, params), 1u);
  params = Plain();
  params.top_p = 1e-9f;
  EXPECT_EQ(SampledId({0, 3, 1, 3, 3}, params), 1u);
}

TEST(SamplingTest, RepetitionCountsPromptAndCompletionWithinTheWindow) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.1f;
  const Tokens committed = Ids({0, 2, 2});
  const SamplingHistory history = {committed, 2};
  EXPECT_EQ(SampledId({2.0f, 1.9f, 0}, params, history), 1u);      // 2 / 1.1 < 1.9
  EXPECT_EQ(SampledId({2.2f, 1.9f, 0}, params, history), 0u);      // 2.2 / 1.1 > 1.9
  EXPECT_EQ(SampledId({-1.0f, -1.05f, -9}, params, history), 1u);  // -1 · 1.1 < -1.05
  EXPECT_EQ(SampledId({0, 1.9f, 2.2f}, params, history), 2u);      // once, though committed twice
  params.repetition_window = 2;
  EXPECT_EQ(SampledId({2.0f, 1.9f, 0}, params, history), 0u);  // 0 left the window
  params.repetition_window = 0;
  EXPECT_EQ(SampledId({0, 1.9f, 2.0f}, params, history), 2u);
  params.repetition_window = -1;
  EXPECT_EQ(SampledId({2.0f, 1.9f, 0}, params, history), 1u);
}

TEST(SamplingTest, FrequencyAndPresenceCountTheCompletionOnly) {
  SamplingParams params = Greedy();
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  const Tokens committed = Ids({0, 0, 0, 1, 1});
  const SamplingHistory history = {committed, 3};
  EXPECT_EQ(SampledId({1.0f, 1.0f, 0}, params, history), 0u);   // the prompt does not count
  EXPECT_EQ(SampledId({1.0f, 2.26f, 0}, params, history), 1u);  // 2.26 - 2 · 0.5 - 0.25 > 1
  EXPECT_EQ(SampledId({1.0f, 2.24f, 0}, params, history), 0u);
  params.frequency_penalty = -0.5f;
  params.presence_penalty = 0;
  EXPECT_EQ(SampledId({1.0f, 0.1f, 0}, params, history), 1u);
}

TEST(SamplingTest, BiasComesFirstAndCannotOverflow) {
  SamplingParams params = Greedy();
  params.logit_bias = {{TokenId{2}, 100.0f}, {TokenId{1}, -100.0f}};
  EXPECT_EQ(SampledId({0, 50, -20}, params), 2u);
  params.logit_bias = {{TokenId{0}, 3e38f}};
  EXPECT_EQ(SampledId({3e38f, 0}, params), 0u);
  params.temperature = 1;
  EXPECT_EQ(SampledId({3e38f, 0}, params), 0u);
  // A biased negative logit that became positive is divided by the penalty, not multiplied.
  params = Greedy();
  params.logit_bias = {{TokenId{0}, 3.0f}};
  params.repetition_penalty = 2;
  const Tokens committed = Ids({0});
  EXPECT_EQ(SampledId({-1.0f, 0.9f}, params, {committed, 1}), 0u);
  EXPECT_EQ(SampledId({-1.0f, 1.1f}, params, {committed, 1}), 1u);
}

// --- Logprobs ---

TEST(SamplingTest, LogprobsAreThoseOfTheModel) {
  const Logits logits = {1.0f, 2.0f, 0.5f, 2.0f};
  SamplingParams params = Greedy();
  params.num_logprobs = 3;
  params.logit_bias = {{TokenId{2}, 50.0f}};
  const SampledToken token = SampleOrDie(logits, params);
  const double log_sum = std::log(std::exp(1.0) + 2 * std::exp(2.0) + std::exp(0.5));
  EXPECT_EQ(token.id, TokenId{2});
  EXPECT_NEAR(token.logprob, 0.5 - log_sum, 3e-7);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].id, TokenId{1});
  EXPECT_EQ(token.top[1].id, TokenId{3});
  EXPECT_EQ(token.top[2].id, TokenId{0});
  EXPECT_NEAR(token.top[0].logprob, 2.0 - log_sum, 3e-7);
  EXPECT_NEAR(token.top[2].logprob, 1.0 - log_sum, 3e-7);
  EXPECT_EQ(SampleOrDie({5.0f}, Greedy()).logprob, 0.0f);
}

// --- Purity and errors ---

TEST(SamplingTest, CallersFloatingPointModeIsIgnoredAndRestored) {
  SplitMix64 random(32);
  Logits logits = RandomLogits(random, 500);
  for (float& logit : logits) logit *= 1e-39f;  // subnormal: flushed, they would all tie
  SamplingParams params = Greedy();
  const SampledToken expected = SampleOrDie(logits, params);
  const unsigned caller = _mm_getcsr();
  const unsigned hostile = caller | 0x8040 | 0x6000;  // flush to zero, denormals are zero, truncate
  _mm_setcsr(hostile);
  const Result<SampledToken> actual = Sample(kScalarRows, logits, params, {}, {});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(caller);
  EXPECT_EQ(actual->id, expected.id);
  EXPECT_EQ(std::memcmp(&actual->logprob, &expected.logprob, sizeof(float)), 0);
  EXPECT_EQ(after & 0xFFC0, hostile & 0xFFC0);
}

TEST(SamplingTest, NonFiniteLogitsFail) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const auto token = Sample(kScalarRows, Logits{0, bad, 1}, Greedy(), {}, {.position = 9});
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code, ErrorCode::kNonFinite);
    EXPECT_THAT(token.error().message, testing::HasSubstr("position 9"));
  }
}

TEST(SamplingTest, BadParamsAreRefusedByField) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto expect_bad = [](const char* field,
                             const std::function<void(SamplingParams&)>& change) {
    SamplingParams params;
    change(params);
    const Status status = ValidateSamplingParams(params, 100);
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, testing::StartsWith(std::string(field) + ": "));
  };
  EXPECT_TRUE(ValidateSamplingParams({}, 100).ok());
  for (const float x : {-0.1f, kNan, std::numeric_limits<float>::infinity()}) {
    expect_bad("temperature", [&](SamplingParams& p) { p.temperature = x; });
    expect_bad("repetition_penalty", [&](SamplingParams& p) { p.repetition_penalty = x; });
  }
  for (const float x : {-0.1f, 1.1f, kNan}) {
    expect_bad("top_p", [&](SamplingParams& p) { p.top_p = x; });
    expect_bad("min_p", [&](SamplingParams& p) { p.min_p = x; });
  }
  expect_bad("top_p", [](SamplingParams& p) { p.top_p = 0; });
  expect_bad("repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; });
  expect_bad("repetition_window", [](SamplingParams& p) { p.repetition_window = -2; });
  expect_bad("presence_penalty", [&](SamplingParams& p) { p.presence_penalty = kNan; });
  expect_bad("frequency_penalty", [&](SamplingParams& p) { p.frequency_penalty = kNan; });
  expect_bad("num_logprobs", [](SamplingParams& p) { p.num_logprobs = -1; });
  expect_bad("num_logprobs", [](SamplingParams& p) { p.num_logprobs = 101; });
  expect_bad("logit_bias", [](SamplingParams& p) { p.logit_bias = {{TokenId{100}, 1.0f}}; });
  expect_bad("logit_bias", [&](SamplingParams& p) { p.logit_bias = {{TokenId{1}, kNan}}; });
}

}  // namespace
}  // namespace kvern::compute
