#include "cli/serve_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/mapped_file.h"
#include "cli/serve_table.h"
#include "cli/serve_text.h"

namespace kvern::cli {
namespace {

Workload Plan(const std::string& name, WorkloadShape shape) {
  const auto row = FindWorkload(name);
  EXPECT_TRUE(row.ok());
  auto workload = (*row)->plan({.shape = shape});
  EXPECT_TRUE(workload.ok()) << workload.error().message;
  return *std::move(workload);
}

TEST(ServeWorkload, EveryRowPlansItsDefaultsWithEarlierRequestsOnly) {
  for (const WorkloadRow& row : ServeWorkloads()) {
    const auto workload = row.plan({.shape = row.defaults});
    if (!workload.ok()) {
      EXPECT_EQ(row.name, "trace");
      EXPECT_NE(workload.error().message.find("--trace"), std::string::npos);
      continue;
    }
    EXPECT_FALSE(workload->requests.empty()) << row.name;
    EXPECT_FALSE(workload->description.empty()) << row.name;
    for (size_t i = 0; i < workload->requests.size(); ++i) {
      const PlannedRequest& request = workload->requests[i];
      EXPECT_GT(request.new_tokens, 0u) << row.name;
      for (const Trigger& trigger : request.after) EXPECT_LT(trigger.request, i) << row.name;
      for (const PromptPart& part : request.prompt) {
        if (part.kind == PromptPart::Kind::kText) continue;
        // What a prompt is made of has ended before it is sent.
        EXPECT_TRUE(std::ranges::any_of(request.after, [&](const Trigger& trigger) {
          return trigger.request >= part.index;
        })) << row.name;
      }
    }
  }
}

TEST(ServeWorkload, SharedPrefixHasOnePrefixAndPrivateTails) {
  const Workload workload =
      Plan("shared-prefix", {.requests = 3, .prefix = 100, .tail = 10, .new_tokens = 5});
  ASSERT_EQ(workload.requests.size(), 3u);
  std::set<uint64_t> tails;
  for (const PlannedRequest& request : workload.requests) {
    ASSERT_EQ(request.prompt.size(), 2u);
    EXPECT_EQ(request.prompt[0], workload.shared[0][0]);
    tails.insert(request.prompt[1].index);
  }
  EXPECT_EQ(tails.size(), 3u);
  EXPECT_EQ(PromptLengths(workload), (std::vector<size_t>{110, 110, 110}));
  EXPECT_EQ(LongestSequence(workload), 115u);
  EXPECT_EQ(SumOfSequences(workload), 345u);
}

TEST(ServeWorkload, ChatSendsTheWholeHistory) {
  const Workload workload =
      Plan("chat",
           {.requests = 2, .turns = 3, .prefix = 100, .tail = 10, .new_tokens = 5, .think_ms = 7});
  EXPECT_EQ(PromptLengths(workload), (std::vector<size_t>{110, 125, 140, 110, 125, 140}));
  EXPECT_TRUE(workload.requests[3].after.empty());
  EXPECT_EQ(workload.requests[2].after[0].request, 1u);
  EXPECT_EQ(workload.requests[2].delay_us, 7000);
}

TEST(ServeWorkload, AnAgentGoesOnWithWhatItsSubAgentsSaid) {
  const Workload workload =
      Plan("agents",
           {.requests = 1, .turns = 2, .branches = 3, .prefix = 100, .tail = 10, .new_tokens = 5});
  // Three branches, the merge; three branches behind the merge and its reply, and their merge.
  EXPECT_EQ(PromptLengths(workload), (std::vector<size_t>{110, 110, 110, 115, 130, 130, 130, 135}));
  EXPECT_EQ(workload.requests[3].after.size(), 3u);
  EXPECT_EQ(workload.requests[4].after[0].request, 3u);
}

TEST(ServeWorkload, DocumentsAreAskedInTurn) {
  const Workload workload =
      Plan("documents", {.requests = 2, .turns = 2, .prefix = 100, .tail = 10, .new_tokens = 5});
  ASSERT_EQ(workload.requests.size(), 4u);
  EXPECT_EQ(workload.requests[0].prompt[0].index, workload.requests[2].prompt[0].index);
  EXPECT_NE(workload.requests[0].prompt[0].index, workload.requests[1].prompt[0].index);
}

TEST(ServeWorkload, PoissonArrivalsHaveTheRateAndTheSeedsOrder) {
  Workload a = Plan("shared-prefix", {.requests = 2000, .prefix = 1, .tail = 1, .new_tokens = 1});
  Workload b = a;
  SetArrivalRate(a, 50, 7);
  SetArrivalRate(b, 50, 7);
  int64_t last_us = 0;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].delay_us, b.requests[i].delay_us);
    EXPECT_GE(a.requests[i].delay_us, last_us);
    last_us = a.requests[i].delay_us;
  }
  EXPECT_NEAR(static_cast<double>(last_us), 40e6, 4e6);
}

TEST(ServeWorkload, ArrivalsThatAreThereAreStretched) {
  Workload workload{.requests = {{.delay_us = 0}, {.delay_us = 300}, {.delay_us = 400}}};
  SetArrivalRate(workload, 2, 1);
  EXPECT_EQ(workload.requests[1].delay_us, 750'000);
  EXPECT_EQ(workload.requests[2].delay_us, 1'000'000);
}

class TraceWorkload : public testing::Test {
 protected:
  ~TraceWorkload() override { std::remove(path_.c_str()); }

  Result<Workload> Plan(const std::string& text, WorkloadOptions options) {
    EXPECT_TRUE(WriteTextFile(path_, text).ok());
    options.trace_file = path_;
    return PlanTrace(options);
  }

  const std::string path_ = testing::TempDir() + "serve_workload_trace.jsonl";
};

TEST_F(TraceWorkload, BlocksBecomeSharedTextThatIsScaledToTheContext) {
  const auto workload =
      Plan(R"({"timestamp": 0, "input_length": 1100, "output_length": 180, "hash_ids": [1, 2, 3]})"
           "\n"
           R"({"timestamp": 9, "input_length": 700, "output_length": 1, "hash_ids": [1, 8]})",
           {.shape = {.requests = 64, .turns = 8}, .max_context = 320});
  ASSERT_TRUE(workload.ok()) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 2u);
  const PromptParts& first = workload->requests[0].prompt;
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0], PromptPart::Text(1, 128));
  EXPECT_EQ(first[2], PromptPart::Text(3, 19));
  EXPECT_EQ(workload->requests[0].new_tokens, 45u);
  EXPECT_EQ(workload->requests[1].prompt[0], first[0]);
  EXPECT_EQ(workload->requests[1].new_tokens, 1u);
  EXPECT_EQ(workload->requests[1].delay_us, 9000);
}

TEST_F(TraceWorkload, LeavesOutWhatIsTooLongAndRefusesIfNothingIsLeft) {
  const std::string text = "arrival_ms,context_tokens,generated_tokens\n0,10,10\n5,1000,10\n";
  const WorkloadOptions options{
      .shape = {.requests = 64, .turns = 8}, .scale = 1.0, .max_context = 100};
  const auto workload = Plan(text, options);
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(workload->requests.size(), 1u);
  EXPECT_EQ(workload->num_left_out, 1u);
  WorkloadOptions tiny = options;
  tiny.max_context = 5;
  EXPECT_FALSE(Plan(text, tiny).ok());
  tiny.scale = 1.5;
  EXPECT_FALSE(Plan(text, tiny).ok());
}

TEST(Workload, TheFirstRequestsCanBeSkipped) {
  Workload shared = *PlanSharedPrefix({.shape = {.requests = 4, .prefix = 8, .tail = 2}});
  const Workload all = shared;
  ASSERT_TRUE(SkipRequests(shared, 3).ok());
  ASSERT_EQ(shared.requests.size(), 1u);
  EXPECT_EQ(shared.requests[0].prompt, all.requests[3].prompt);
  EXPECT_FALSE(SkipRequests(shared, 1).ok());
  Workload chat = *PlanChat({.shape = {.requests = 1, .turns = 2, .prefix = 8, .tail = 2}});
  EXPECT_TRUE(SkipRequests(chat, 0).ok());
  EXPECT_FALSE(SkipRequests(chat, 1).ok());
}

TEST(TextMaker, MakesExactLengthsThatBeginEachOther) {
  // A token for each letter: the first of a prompt is preceded by a special one.
  const TextMaker::Encoder encode = [](std::string_view text,
                                       bool add_special) -> Result<std::vector<TokenId>> {
    std::vector<TokenId> tokens;
    if (add_special) tokens.push_back(TokenId{1000});
    for (const char c : text) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
    return tokens;
  };
  TextMaker a(encode, 1), b(encode, 1), other(encode, 2);
  const std::vector<TokenId> longer = *a.Make(5, 2000, false);
  ASSERT_EQ(longer.size(), 2000u);
  const std::vector<TokenId> shorter = *b.Make(5, 300, false);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  EXPECT_NE(*other.Make(5, 300, false), shorter);
  EXPECT_NE(*b.Make(6, 300, false), shorter);
  EXPECT_EQ(b.Make(5, 300, true)->front(), TokenId{1000});
  EXPECT_TRUE(b.Make(5, 0, false)->empty());
}

TEST(TextMaker, SaysWhatItsEncoderSays) {
  TextMaker texts(
      [](std::string_view, bool) {
        return Error{ErrorCode::kIo, "nobody listens"};
      },
      1);
  const auto made = texts.Make(1, 5, false);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "nobody listens");
}

TEST(TextMaker, TextsBeginDifferently) {
  std::set<std::string> beginnings;
  for (uint64_t text = 0; text < 100; ++text) {
    beginnings.insert(MakeParagraph(1, text, 0).substr(0, 20));
  }
  EXPECT_GT(beginnings.size(), 90u);
}

}  // namespace
}  // namespace kvern::cli
