#include "cli/bench_kv_quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvern::cli {
namespace {

TEST(NextToken, ProbabilitiesAreThoseOfTheLogits) {
  const std::vector<float> logits = {std::log(1.0f), std::log(3.0f), std::log(4.0f)};
  const NextToken token(logits);
  EXPECT_NEAR(std::exp(token.LogProbability(0)), 0.125, 1e-7);
  EXPECT_NEAR(std::exp(token.LogProbability(1)), 0.375, 1e-7);
  EXPECT_EQ(token.top(), 2u);
}

TEST(NextToken, ShiftedLogitsAreTheSameDistribution) {
  const std::vector<float> a = {1.0f, 2.0f, 2.0f}, b = {1001.0f, 1002.0f, 1002.0f};
  EXPECT_NEAR(NextToken(a).DivergenceOf(NextToken(b)), 0, 1e-12);
  EXPECT_EQ(NextToken(b).top(), 1u);  // the first of the largest
}

TEST(NextToken, DivergenceIsThatOfTheDefinition) {
  const std::vector<float> p = {std::log(0.5f), std::log(0.5f)};
  const std::vector<float> q = {std::log(0.25f), std::log(0.75f)};
  const double expected = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(NextToken(p).DivergenceOf(NextToken(q)), expected, 1e-7);
  EXPECT_EQ(NextToken(p).DivergenceOf(NextToken(p)), 0);
  EXPECT_NE(NextToken(q).DivergenceOf(NextToken(p)), NextToken(p).DivergenceOf(NextToken(q)));
}

}  // namespace
}  // namespace kvern::cli
