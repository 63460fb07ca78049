#include "cli/bench_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bench_flags.h"

namespace kvern::cli {
namespace {

using nlohmann::ordered_json;

std::string Print(BenchFormat format, size_t num_rows) {
  std::string text;
  BenchTable table(format, {{"test", 6, true}, {"t/s", 12}},
                   [&](std::string_view part) { text += part; });
  for (size_t i = 0; i < num_rows; ++i) {
    table.Add(std::vector<std::string>{"pp" + std::to_string(i), FormatMeanSd({12.5, 0.25})},
              {{"name", "a \"b\""}, {"n", i}, {"ts", 12.5}, {"samples", {1, 2}}});
  }
  table.Finish();
  return text;
}

TEST(BenchTable, PrintsMarkdownWithAlignedColumns) {
  EXPECT_EQ(Print(BenchFormat::kMarkdown, 2),
            "| test   |          t/s |\n"
            "| ------ | -----------: |\n"
            "| pp0    | 12.50 ± 0.25 |\n"
            "| pp1    | 12.50 ± 0.25 |\n");
}

TEST(BenchTable, PrintsJsonThatParses) {
  for (const size_t num_rows : {0, 1, 3}) {
    const auto document = ordered_json::parse(Print(BenchFormat::kJson, num_rows));
    ASSERT_EQ(document.size(), num_rows);
    for (size_t i = 0; i < num_rows; ++i) EXPECT_EQ(document[i]["n"], i);
  }
}

TEST(BenchTable, PrintsOneJsonDocumentALine) {
  EXPECT_EQ(Print(BenchFormat::kJsonLines, 1),
            "{\"name\":\"a \\\"b\\\"\",\"n\":0,\"ts\":12.5,\"samples\":[1,2]}\n");
}

TEST(BenchTable, PrintsCsvWithoutArrays) {
  EXPECT_EQ(Print(BenchFormat::kCsv, 2),
            "name,n,ts\n\"a \"\"b\"\"\",\"0\",\"12.5\"\n\"a \"\"b\"\"\",\"1\",\"12.5\"\n");
}

TEST(BenchTable, FormatsAreNamed) {
  EXPECT_EQ(ParseBenchFormat("jsonl").value(), BenchFormat::kJsonLines);
  EXPECT_EQ(ParseBenchFormat("sql").error().message,
            "-o: unknown format 'sql': use one of md, json, jsonl, csv");
}

TEST(MeanSd, IsOfTheSample) {
  const std::vector<double> values = {2, 4, 6};
  EXPECT_EQ(FormatMeanSd(ComputeMeanSd(values)), "4.00 ± 2.00");
  EXPECT_EQ(ComputeMeanSd(std::vector<double>{3}).sd, 0);
}

TEST(ParseCounts, TakesListsAndRepeatedFlags) {
  EXPECT_EQ(ParseCounts("-p", {"1,22", "3"}, kTokenRange).value(),
            (std::vector<uint32_t>{1, 22, 3}));
}

TEST(ParseCounts, NamesTheFlagAndTheRange) {
  for (const std::string bad : {"", "a", "1,", ",", "-1", "1.5", "9", "99999999999"}) {
    const auto counts = ParseCounts("-t", {bad}, {1, 8});
    ASSERT_FALSE(counts.ok()) << bad;
    EXPECT_EQ(counts.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(counts.error().message.find("-t: '"), std::string::npos);
    EXPECT_NE(counts.error().message.find("1 … 8"), std::string::npos);
  }
}

TEST(ParseCountPair, WantsTwo) {
  EXPECT_EQ(ParseCountPair("-pg", "512,128", kTokenRange).value(),
            (std::pair<uint32_t, uint32_t>(512, 128)));
  for (const std::string bad : {"512", "1,2,3", "a,1", ""}) {
    EXPECT_FALSE(ParseCountPair("-pg", bad, kTokenRange).ok()) << bad;
  }
}

}  // namespace
}  // namespace kvern::cli
