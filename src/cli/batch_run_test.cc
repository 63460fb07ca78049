// Batches answered by a stand-in for the engine: in any order, killed at any byte, with failures.
#include "cli/batch_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "cli/batch_test_util.h"
#include "server/api/api_test_util.h"

namespace kvern::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const server::LetterText kText;
const server::ModelInfo kModel = {.text = &kText, .context = 100, .fingerprint = "ab"};

// Answers a prompt with a hash of it, one request at a time, in a random order.
class FakeAnswerer final : public Answerer {
 public:
  explicit FakeAnswerer(uint64_t seed) : random_(seed) {}

  void Submit(size_t key, Request request) override {
    const std::string prompt = server::TextOf(request.tokens);
    prompts.push_back(prompt);
    asked_.emplace_back(key, AnswerTo(prompt, request.n));
    most_asked = std::max(most_asked, asked_.size());
  }

  std::optional<Finished> Await(int64_t timeout_us) override {
    if (asked_.empty()) return std::nullopt;
    if (timeout_us == 0 && random_() % 2 == 0) return std::nullopt;  // nothing is there yet
    if (num_left == 0) {
      stop = true;
      return std::nullopt;
    }
    --num_left;
    std::swap(asked_[random_() % asked_.size()], asked_.back());
    Finished finished{asked_.back().first, std::move(asked_.back().second)};
    asked_.pop_back();
    return finished;
  }

  size_t num_left = SIZE_MAX;  // answers until Ctrl-C
  std::atomic<bool> stop{false};
  std::vector<std::string> prompts;  // in the order of asking
  size_t most_asked = 0;

 private:
  static Result<Answer> AnswerTo(const std::string& prompt, size_t n) {
    if (prompt.starts_with("fail")) return Errorf(ErrorCode::kNonFinite, "no logits");
    const uint64_t hash = Hash64(std::as_bytes(std::span(prompt)), 0);
    Answer answer;
    for (size_t i = 0; i < n; ++i) {
      answer.completions.push_back(server::Say(fmt::format("{:x}", hash + i), -1));
    }
    answer.report.prompt_tokens = prompt.size();
    answer.report.prefilled_tokens = prompt.size() - 1;
    answer.report.prompt.ram = 1;
    answer.report.completion_tokens = n;
    return answer;
  }

  std::mt19937_64 random_;
  std::vector<std::pair<size_t, Result<Answer>>> asked_;
};

std::string RequestLine(const std::string& id, const std::string& prompt) {
  return Json{{"custom_id", id},
              {"method", "POST"},
              {"url", "/v1/completions"},
              {"body", {{"prompt", prompt}}}}
             .dump() +
         "\n";
}

class RunBatchTest : public testing::Test {
 protected:
  Result<BatchFigures> Run(FakeAnswerer& answerer, BatchOptions options = {}) {
    auto files = OpenBatchFiles(folder_.Path("in"), folder_.Path("out"), clock_);
    if (!files.ok()) return files.error();
    options.id_prefix = fmt::format("run{}", ++num_runs_);
    options.unix_time_s = [this] { return int64_t{num_runs_}; };
    return RunBatch(std::move(files).value(), options, kModel, answerer, answerer.stop);
  }

  // What each custom_id, or malformed line, was answered: all that does not depend on the run.
  // Each must be there once.
  std::map<std::string, std::string> Replies() {
    std::map<std::string, std::string> replies;
    std::istringstream lines(folder_.Read("out"));
    for (std::string text; std::getline(lines, text);) {
      Json line = Json::parse(text);
      const std::string key =
          line["custom_id"].is_null() ? line["error"]["line"].dump() : line["custom_id"].dump();
      EXPECT_TRUE(ids_.insert(line["id"]).second) << text;
      if (!line["response"].is_null()) {
        line["response"]["body"].erase("id");
        line["response"]["body"].erase("created");
      }
      const std::string reply =
          line["response"].is_null()
              ? line["error"].dump()
              : line["response"]["status_code"].dump() + line["response"]["body"].dump();
      EXPECT_TRUE(replies.emplace(key, reply).second) << text;
    }
    ids_.clear();
    return replies;
  }

  ScratchFolder folder_;
  StoppedClock clock_;
  int num_runs_ = 0;
  std::set<std::string> ids_;
};

TEST_F(RunBatchTest, AnswersEachLineWhateverItIs) {
  folder_.Write("in", RequestLine("a", "Hi") + "oops\n" + RequestLine("b", "") +
                          R"({"custom_id": "c", "method": "GET"})"
                          "\n" +
                          RequestLine("d", "fail"));
  FakeAnswerer answerer(1);
  const auto figures = Run(answerer);
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->num_requests, 5u);
  EXPECT_EQ(figures->num_done, 5u);
  EXPECT_EQ(figures->num_failed, 4u);
  EXPECT_EQ(figures->prompt_tokens, 2u);
  EXPECT_EQ(figures->prompts.ram, 1u);
  EXPECT_FALSE(figures->was_stopped);
  const auto replies = Replies();
  ASSERT_EQ(replies.size(), 5u);
  EXPECT_THAT(replies.at("\"a\""), HasSubstr("200"));
  EXPECT_THAT(replies.at("2"), HasSubstr("line 2: not JSON"));
  EXPECT_THAT(replies.at("\"b\""), HasSubstr("prompt: is empty"));
  EXPECT_THAT(replies.at("\"c\""), HasSubstr("line 4: method"));
  EXPECT_THAT(replies.at("\"d\""), HasSubstr("no logits"));
}

TEST_F(RunBatchTest, AsksInTheOrderOfPrefixesWindowByWindow) {
  std::string input;
  int id = 0;
  for (const char* const prompt : {"b2", "a1", "b1", "a2", "z", "a3", "a1", "b0"}) {
    input += RequestLine(std::to_string(id++), prompt);
  }
  folder_.Write("in", input);
  FakeAnswerer answerer(1);
  ASSERT_TRUE(Run(answerer).ok());
  EXPECT_THAT(answerer.prompts, ElementsAre("a1", "a1", "a2", "a3", "b0", "b1", "b2", "z"));

  folder_.Write("out", "");
  FakeAnswerer by_lines(1);
  ASSERT_TRUE(Run(by_lines, {.window_lines = 4}).ok());
  EXPECT_THAT(by_lines.prompts, ElementsAre("a1", "a2", "b1", "b2", "a1", "a3", "b0", "z"));

  folder_.Write("out", "");
  FakeAnswerer by_tokens(1);
  ASSERT_TRUE(Run(by_tokens, {.window_tokens = 3}).ok());
  EXPECT_THAT(by_tokens.prompts, ElementsAre("a1", "b2", "a2", "b1", "a3", "z", "a1", "b0"));
}

TEST_F(RunBatchTest, AsksABoundedNumberAtATime) {
  std::string input;
  for (int i = 0; i < 50; ++i) input += RequestLine(std::to_string(i), "p" + std::to_string(i));
  folder_.Write("in", input);
  FakeAnswerer answerer(2);
  ASSERT_TRUE(Run(answerer, {.max_in_flight = 7}).ok());
  EXPECT_EQ(answerer.most_asked, 7u);
  EXPECT_EQ(Replies().size(), 50u);
}

std::string MixedInput(std::mt19937_64& random, int num_lines) {
  std::string input;
  for (int i = 0; i < num_lines; ++i) {
    switch (random() % 8) {
      case 0:
        input += "broken " + std::to_string(i) + "\n";
        break;
      case 1:
        input += RequestLine("e" + std::to_string(i), "");
        break;
      case 2:
        input += "\n";
        break;
      default:
        input += RequestLine("é" + std::to_string(i), "p" + std::to_string(random() % 20));
    }
  }
  return input;
}

TEST_F(RunBatchTest, GoesOnFromAnyByteAtWhichItWasKilled) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  folder_.Write("in", MixedInput(random, 40));
  FakeAnswerer undisturbed(seed);
  ASSERT_TRUE(Run(undisturbed).ok());
  const std::string whole = folder_.Read("out");
  const auto expected = Replies();

  for (int round = 0; round < 100; ++round) {
    const std::string left = whole.substr(0, random() % (whole.size() + 1));
    folder_.Write("out", left);
    FakeAnswerer answerer(random());
    const auto figures = Run(answerer, {.window_lines = 1 + random() % 50});
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    const size_t kept = left.rfind('\n') == std::string::npos ? 0 : left.rfind('\n') + 1;
    ASSERT_EQ(folder_.Read("out").substr(0, kept), left.substr(0, kept));
    ASSERT_EQ(figures->num_dropped_bytes, left.size() - kept);
    ASSERT_EQ(figures->num_kept + figures->num_done, figures->num_requests);
    ASSERT_EQ(Replies(), expected);
  }
}

TEST_F(RunBatchTest, GoesOnAfterCtrlC) {
  std::mt19937_64 random(7);
  folder_.Write("in", MixedInput(random, 60));
  FakeAnswerer undisturbed(1);
  ASSERT_TRUE(Run(undisturbed).ok());
  const auto expected = Replies();

  folder_.Write("out", "");
  size_t num_done = 0;
  for (int round = 0; round < 100 && num_done < expected.size(); ++round) {
    FakeAnswerer answerer(random());
    answerer.num_left = 1 + random() % 10;
    const auto figures = Run(answerer, {.max_in_flight = 5, .window_lines = 20});
    ASSERT_TRUE(figures.ok());
    ASSERT_EQ(figures->num_kept, num_done);
    num_done += figures->num_done;
    ASSERT_EQ(figures->was_stopped, num_done < expected.size());
  }
  EXPECT_EQ(Replies(), expected);
}

TEST_F(RunBatchTest, HasNothingToDoTwice) {
  folder_.Write("in", RequestLine("a", "Hi") + "oops\n");
  FakeAnswerer first(1);
  ASSERT_TRUE(Run(first).ok());
  EXPECT_TRUE(OpenBatchFiles(folder_.Path("in"), folder_.Path("out"), clock_)->IsDone());
  FakeAnswerer second(1);
  const auto figures = Run(second);
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->num_done, 0u);
  EXPECT_EQ(figures->num_kept, 2u);
  EXPECT_TRUE(second.prompts.empty());
}

TEST_F(RunBatchTest, AnEmptyInputHasAnEmptyOutput) {
  folder_.Write("in", "\n");
  FakeAnswerer answerer(1);
  ASSERT_TRUE(Run(answerer).ok());
  EXPECT_EQ(folder_.Read("out"), "");
}

}  // namespace
}  // namespace kvern::cli
