#include "cli/bench_kv_cases.h"

#include <gtest/gtest.h>

#include <vector>

#include "cli/bench_kv_types.h"

namespace kvern::cli {
namespace {

TEST(KvCases, TypesTakeTurnsWithinEachRound) {
  std::vector<size_t> order;
  // The machine halves its speed from round to round; the second type is twice as fast.
  double pace = 1;
  const KvCase kv_case = {.key = "x",
                          .title = "x",
                          .depth = 0,
                          .unit = KvUnit::kTokensPerSecond,
                          .work = 12,
                          .run = [&](size_t type) -> Result<double> {
                            order.push_back(type);
                            if (type == 0) pace *= 2;
                            return pace / static_cast<double>(1 + type);
                          }};
  const auto timings = TimeCase(kv_case, 2, 3).value();
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(timings[0].seconds, (std::vector<double>{4, 8, 16}));
  EXPECT_EQ(timings[0].value, 12.0 / 8);
  EXPECT_EQ(timings[1].value, 12.0 / 4);
  EXPECT_EQ(timings[0].speed, 1);
  EXPECT_EQ(timings[1].speed, 2);
}

TEST(KvCases, ErrorsOfRunsEndTheCase) {
  const KvCase kv_case = {
      .key = "x",
      .title = "x",
      .depth = 0,
      .unit = KvUnit::kMilliseconds,
      .work = 1,
      .run = [](size_t) -> Result<double> { return Errorf(ErrorCode::kOutOfMemory, "full"); }};
  EXPECT_EQ(TimeCase(kv_case, 1, 1).error().message, "full");
}

TEST(KvCases, Median) {
  EXPECT_EQ(MedianOf({3, 1, 2}), 2);
  EXPECT_EQ(MedianOf({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(MedianOf({7}), 7);
}

TEST(KvTypes, NamesAndPairs) {
  const auto list = ParseKvTypes("--types", {"q8r", "q8_0", "q8r/f16", "f16", "f32/q4_0"}).value();
  std::vector<std::string> names;
  for (const KvTypes& types : list) names.push_back(NameOf(types));
  EXPECT_EQ(names, (std::vector<std::string>{"f16", "q8r", "q8r/f16", "f32/q4r"}));
  for (const char* const bad : {"q9", "q8r/", "/f16", "q8r/f16/f16", ""}) {
    EXPECT_FALSE(ParseKvTypes("--types", {bad}).ok()) << bad;
  }
}

// Private sequences have blocks of their own for all rows, sharing ones behind the prefix.
TEST(KvCases, BlocksOfTheLargestStep) {
  const KvCaseOptions batch = {
      .depths = {0, 512}, .num_prompt = 100, .num_new = 17, .num_sequences = 3, .prefix = 256};
  EXPECT_EQ(MostStepBlocks(batch), 3u * 18);
  const KvCaseOptions deep = {
      .depths = {0, 5120}, .num_prompt = 100, .num_new = 17, .num_sequences = 3, .prefix = 256};
  EXPECT_EQ(MostStepBlocks(deep), 320u + 7);
}

}  // namespace
}  // namespace kvern::cli
