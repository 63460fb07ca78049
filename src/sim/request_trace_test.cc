#include "sim/request_trace.h"

#include <gtest/gtest.h>

namespace kvern::sim {
namespace {

RequestTrace Parse(const std::string& text) {
  auto trace = ParseRequestTrace(text, "t");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace.ok() ? *trace : RequestTrace{};
}

std::string ErrorOf(const std::string& text) {
  const auto trace = ParseRequestTrace(text, "t");
  EXPECT_FALSE(trace.ok());
  return trace.ok() ? "" : trace.error().message;
}

TEST(RequestTrace, ReadsLengths) {
  const RequestTrace trace =
      Parse("\narrival_ms,context_tokens,generated_tokens\n5,374,44\n9,1,0\n");
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.block_tokens, 0u);
  EXPECT_EQ(trace.requests[1].arrival_us, 4000u);
  EXPECT_EQ(trace.requests[0].prompt_tokens, 374u);
  EXPECT_EQ(trace.requests[0].new_tokens, 44u);
  EXPECT_NE(trace.requests[0].session, trace.requests[1].session);
}

TEST(RequestTrace, ReadsMooncakesBlocksAsRuns) {
  const RequestTrace trace = Parse(
      "{\"timestamp\": 7, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [3, 4, "
      "9]}\r\n"
      "\n"
      "{\"timestamp\": 3007, \"input_length\": 100, \"output_length\": 1, \"hash_ids\": []}");
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.block_tokens, 512u);
  const TraceRequest& first = trace.requests[0];
  EXPECT_EQ(first.arrival_us, 0u);
  EXPECT_EQ(first.prompt_tokens, 1500u);
  ASSERT_EQ(first.blocks.size(), 2u);
  EXPECT_EQ(first.blocks[0].first, 3u);
  EXPECT_EQ(first.blocks[0].count, 2u);
  EXPECT_EQ(first.blocks[1].first, 9u);
  EXPECT_EQ(trace.requests[1].arrival_us, 3'000'000u);
  EXPECT_TRUE(trace.requests[1].blocks.empty());
}

constexpr char kSession[] =
    R"({"block_size": 64, "requests": [)"
    R"({"t": 0.0, "in": 200, "out": 5, "h": [[1, 3]]},)"
    R"({"t": 1.5, "type": "subagent", "requests": [)"
    R"({"t": 0.5, "in": 64, "out": 1, "h": [[9, 1]]}, {"t": 2, "in": 64, "out": 1, "h": []}]},)"
    R"({"t": 9, "in": 300, "out": 7, "think_time": 0.25, "h": [[1, 2], [5, 1]]}]})";

TEST(RequestTrace, ASessionsRequestsWaitForEachOtherAndForTheirSubAgents) {
  const RequestTrace trace = Parse(std::string(kSession) + "\n" + kSession + "\n");
  ASSERT_EQ(trace.requests.size(), 8u);
  EXPECT_EQ(trace.block_tokens, 64u);
  EXPECT_TRUE(trace.requests[0].after.empty());
  EXPECT_EQ(trace.requests[1].after, std::vector<size_t>{0});
  EXPECT_EQ(trace.requests[1].arrival_us, 2'000'000u);
  EXPECT_EQ(trace.requests[2].after, std::vector<size_t>{1});
  EXPECT_EQ(trace.requests[3].after, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(trace.requests[3].think_us, 250'000u);
  EXPECT_TRUE(trace.requests[4].after.empty());
  EXPECT_EQ(trace.requests[5].after, std::vector<size_t>{4});

  // Ids are the session's own.
  EXPECT_EQ(trace.requests[0].session, 0u);
  EXPECT_EQ(trace.requests[4].session, 1u);
  EXPECT_EQ(trace.requests[0].blocks[0].first, 1u);
  EXPECT_EQ(trace.requests[4].blocks[0].first, (uint64_t{1} << 32) + 1);
}

TEST(RequestTrace, AnErrorNamesTheLineAndTheField) {
  const std::string good =
      "{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n";
  const struct {
    std::string text, error;
  } kCases[] = {
      {"", "t:1: the header is"},
      {"{", "t:1: is no JSON object"},
      {"\x1f\x8b{", "t: is compressed"},
      {"{}", "t:1: \"timestamp\" is no whole number"},
      {good + "\n[1]", "t:3: is no JSON object"},
      {good + "{\"timestamp\": 4, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}",
       "t:2: \"timestamp\" is before that of the line above"},
      {good + "{\"timestamp\": -1}", "t:2: \"timestamp\" is no whole number"},
      {"{\"timestamp\": 1.5}", "t:1: \"timestamp\" is no whole number"},
      {"{\"timestamp\": 5, \"input_length\": 268435457}",
       "t:1: \"input_length\" is no whole number from 0 to 268435456"},
      {"{\"timestamp\": 5, \"input_length\": 1, \"output_length\": \"1\"}",
       "t:1: \"output_length\" is no whole number"},
      {"{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1}",
       "t:1: \"hash_ids\" is no array"},
      {"{\"timestamp\": 5, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [4294967296]}",
       "t:1: \"hash_ids\" has something that is no id"},
      {"{\"timestamp\": 5, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [1, 2]}",
       "t:1: 2 blocks of 512 tokens are more than its prompt of 512 tokens"},
      {"{\"block_size\": 0, \"requests\": []}", "t:1: \"block_size\" is 0"},
      {"{\"block_size\": 64, \"requests\": 1}", "t:1: \"requests\" is no array"},
      {"{\"block_size\": 64, \"requests\": [1]}", "t:1: \"requests\" has something"},
      {"{\"block_size\": 64, \"requests\": [{\"t\": -1}]}", "t:1: \"t\" is no number of seconds"},
      {"{\"block_size\": 64, \"requests\": [{\"t\": 1, \"in\": 1, \"out\": 1, \"h\": [[1]]}]}",
       "t:1: \"h\" has something that is no [id, count]"},
      {"{\"block_size\": 64, \"requests\": [{\"t\": 0, \"requests\": [{\"t\": 0, \"requests\": "
       "[]}]}]}",
       "t:1: a sub-agent has sub-agents"},
      {"{\"block_size\": 64, \"requests\": []}", "t:1: has no request"},
      {good + "{\"block_size\": 64, \"requests\": []}",
       "t:2: blocks of 64 tokens after some of 512"},
  };
  for (const auto& [text, error] : kCases) {
    EXPECT_EQ(ErrorOf(text).substr(0, error.size()), error) << text;
  }
}

}  // namespace
}  // namespace kvern::sim
