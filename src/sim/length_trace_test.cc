#include "sim/length_trace.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"

namespace kvern::sim {
namespace {

constexpr std::string_view kOurs = "arrival_ms,context_tokens,generated_tokens\n";
constexpr std::string_view kAzure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

LengthTrace Parse(const std::string& text) {
  auto trace = ParseLengthTrace(text, "t.csv");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace.ok() ? *trace : LengthTrace{};
}

std::string ErrorOf(const std::string& text) {
  const auto trace = ParseLengthTrace(text, "t.csv");
  EXPECT_FALSE(trace.ok());
  return trace.ok() ? "" : trace.error().message;
}

TEST(LengthTrace, ReadsBothHeadersAndCountsTimeFromTheFirstRow) {
  const LengthTrace ours = Parse(std::string(kOurs) + "7,374,44\n\n7,0,0\n1007,268435456,9");
  const LengthTrace azure = Parse(std::string(kAzure) +
                                  "2024-02-28 23:59:59.9990000,374,44\r\n"
                                  "2024-02-28 23:59:59.9999999,0,0\r\n"
                                  "2024-03-01 00:00:00+00:00,268435456,9\r\n");
  ASSERT_EQ(ours.size(), 3u);
  ASSERT_EQ(azure.size(), 3u);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].context_tokens, azure[i].context_tokens);
    EXPECT_EQ(ours[i].generated_tokens, azure[i].generated_tokens);
  }
  EXPECT_EQ(ours[0].arrival_ms, 0u);
  EXPECT_EQ(ours[2].arrival_ms, 1000u);
  EXPECT_EQ(azure[1].arrival_ms, 0u);
  EXPECT_EQ(azure[2].arrival_ms, 86'400'001u);  // a leap day later
  EXPECT_EQ(LongestRequest(ours), 268435465u);
  EXPECT_EQ(LongestRequest({}), 0u);
}

TEST(LengthTrace, AnErrorNamesTheLineAndWhatToDo) {
  const struct {
    std::string rows, error;
  } kCases[] = {
      {"", "t.csv:1: no request follows"},
      {"1,2\n", "t.csv:2: \"1,2\" is not three fields"},
      {"1,2,3\n1,2,3,4\n", "t.csv:3: \"1,2,3,4\" is not three fields"},
      {"\n\nx,2,3\n", "t.csv:4: \"x\" is not a whole number of milliseconds"},
      {"9007199254740993,2,3\n", "t.csv:2: \"9007199254740993\" is not a whole number"},
      {"1,-2,3\n", "t.csv:2: \"-2\" is not a number of tokens from 0 to 268435456"},
      {"1,2,268435457\n", "t.csv:2: \"268435457\" is not a number of tokens"},
      {"1,2,\n", "t.csv:2: \"\" is not a number of tokens"},
      {"1, 2,3\n", "t.csv:2: \" 2\" is not a number of tokens"},
      {"1,2,3\x01\n", "t.csv:2: \"3?\" is not a number of tokens"},
      {"5,2,3\n4,2,3\n", "t.csv:3: arrives before the row above: sort"},
      {"5,2,3\n9,2,3\n8,2,3\n", "t.csv:4: arrives before the row above: sort"},
  };
  for (const auto& [rows, error] : kCases) {
    EXPECT_EQ(ErrorOf(std::string(kOurs) + rows).substr(0, error.size()), error);
  }
  EXPECT_EQ(ErrorOf("").substr(0, 24), "t.csv:1: the header is \"");
  EXPECT_NE(ErrorOf("GGUF" + std::string(100, '\0')).find("????????..."), std::string::npos);
  EXPECT_EQ(ErrorOf("\x1f\x8b\x08"), "t.csv: is compressed: unpack it with gunzip first");
}

TEST(LengthTrace, RefusesTimesThatAreNone) {
  for (const std::string time :
       {"2023-11-16", "2023-13-16 18:15:46", "2023-00-16 18:15:46", "2023-11-32 18:15:46",
        "2023-11-16 24:15:46", "2023-11-16 18:60:46", "2023-11-16 18:15:61", "1969-11-16 18:15:46",
        "2023-11-16T18:15:46", "2023-11-16 18:15:46.", "2023-11-16 18:15:46.x",
        "2023-11-16 18:15:46.1234567890", "2023-11-16 18:15:46+01:00", "+00:00", ""}) {
    EXPECT_NE(ErrorOf(std::string(kAzure) + time + ",1,2\n").find("is not a time like"),
              std::string::npos)
        << time;
  }
}

TEST(LengthTrace, TheCommittedAzureTraceIsWhole) {
  const auto trace = ReadLengthTrace("tests/data/traces/azure_llm_2023_conv.csv");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->size(), 19366u);
  uint64_t context = 0, generated = 0;
  for (const LengthRequest& request : *trace) {
    context += request.context_tokens;
    generated += request.generated_tokens;
  }
  EXPECT_EQ(context, 22'361'870u);
  EXPECT_EQ(generated, 4'088'665u);
  EXPECT_EQ(LongestRequest(*trace), 14089u);
  EXPECT_EQ(trace->back().arrival_ms, 3'501'722u);
}

TEST(LengthTrace, ASyntheticTraceDependsOnItsSeedAlone) {
  const LengthTrace trace = MakeSyntheticTrace(1000, 7), again = MakeSyntheticTrace(1000, 7);
  const LengthTrace other = MakeSyntheticTrace(1000, 8);
  size_t num_different = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_EQ(trace[i].num_tokens(), again[i].num_tokens());
    EXPECT_EQ(trace[i].arrival_ms, again[i].arrival_ms);
    num_different += trace[i].num_tokens() != other[i].num_tokens();
    EXPECT_GE(trace[i].context_tokens, 32u);
    EXPECT_LE(trace[i].context_tokens, 8191u);
    EXPECT_GE(trace[i].generated_tokens, 8u);
    EXPECT_LE(trace[i].generated_tokens, 1023u);
    EXPECT_GE(trace[i].arrival_ms, trace[i > 0 ? i - 1 : 0].arrival_ms);
  }
  EXPECT_GT(num_different, 900u);
}

}  // namespace
}  // namespace kvern::sim
