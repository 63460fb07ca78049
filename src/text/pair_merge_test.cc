#include "text/pair_merge.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <utility>

namespace kvern::text {
namespace {

using Merge = PairMerge<int>;
using Rules = std::map<std::pair<int, int>, Merge>;

std::optional<Merge> FindRule(const Rules& rules, int left, int right) {
  const auto rule = rules.find({left, right});
  if (rule == rules.end()) return std::nullopt;
  return rule->second;
}

// Looks at all pairs again after every merge.
std::vector<int> MergeNaively(const Rules& rules, std::vector<int> values) {
  for (;;) {
    uint32_t best_rank = std::numeric_limits<uint32_t>::max();
    size_t best = values.size();
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const auto merge = FindRule(rules, values[i], values[i + 1]);
      if (!merge || merge->rank >= best_rank) continue;
      best_rank = merge->rank;
      best = i;
    }
    if (best == values.size()) return values;
    values[best] = FindRule(rules, values[best], values[best + 1])->value;
    values.erase(values.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(PairMerger, EqualsTheNaiveLoop) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto number = [&](int limit) { return static_cast<int>(random() % limit); };
  PairMerger<int> merger;
  for (int round = 0; round < 3000; ++round) {
    Rules rules;
    for (int i = 0; i < 12; ++i)
      rules[{number(5), number(5)}] = {static_cast<uint32_t>(number(6)), number(5)};
    std::vector<int> values(number(40));
    for (int& value : values) value = number(5);
    const std::vector<int> expected = MergeNaively(rules, values);
    const size_t num_values = values.size();
    const size_t num_lookups =
        merger.Run(values, [&](int left, int right) { return FindRule(rules, left, right); });
    ASSERT_EQ(values, expected);
    ASSERT_LE(num_lookups, 3 * num_values);
  }
}

TEST(PairMerger, LongRunsStayLinear) {
  std::vector<int> values(200'000, 0);
  PairMerger<int> merger;
  // Level by level: 0 0 → 1, 1 1 → 2, …
  const auto find = [](int left, int right) {
    return left == right ? std::optional(Merge{static_cast<uint32_t>(left), left + 1})
                         : std::nullopt;
  };
  EXPECT_LE(merger.Run(values, find), 600'000u);
  EXPECT_EQ(values, (std::vector<int>{17, 16, 11, 10, 8, 6}));  // 200'000 in binary
}

}  // namespace
}  // namespace kvern::text
