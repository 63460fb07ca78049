#include "server/api/openai_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api/api_test_util.h"
#include "server/api/routes.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

// The data of each event; "[DONE]" is a string.
std::vector<Json> EventsOf(std::string_view text) {
  std::vector<Json> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    EXPECT_TRUE(text.starts_with("data: ") && end != text.npos) << text;
    const std::string_view data = text.substr(6, end - 6);
    events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    text.remove_prefix(end + 2);
  }
  return events;
}

class OpenAiFormatTest : public testing::Test {
 protected:
  OpenAiFormat Open(ApiRequest request) {
    request.model = "m";
    return OpenAiFormat(std::move(request), model_, {.id = "7", .created = 5});
  }

  static Chunk Say(const std::string& text, uint32_t completion = 0) {
    Chunk chunk{.completion = completion, .text = text};
    for (const char c : text) {
      chunk.tokens.push_back({TokenId{static_cast<unsigned char>(c)}, -0.5f, {}});
    }
    return chunk;
  }

  LetterText text_;
  const ModelInfo model_{.text = &text_, .context = 64, .fingerprint = "0123456789abcdef"};
};

TEST_F(OpenAiFormatTest, AChatBeginsWithItsRoleAndEndsWithItsReason) {
  OpenAiFormat stream = Open({.num_choices = 2});
  const auto begin = EventsOf(stream.Begin());
  ASSERT_EQ(begin.size(), 2u);
  EXPECT_EQ(begin[1]["choices"][0]["index"], 1);
  EXPECT_EQ(begin[1]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(begin[1]["id"], "chatcmpl-7");
  EXPECT_EQ(begin[1]["object"], "chat.completion.chunk");
  const auto words = EventsOf(stream.Take(Say("hi", 1)));
  EXPECT_EQ(words.at(0)["choices"][0]["delta"], Json({{"content", "hi"}}));
  EXPECT_EQ(words.at(0)["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(stream.Take(Chunk{.completion = 1, .tokens = Say("x").tokens}),
            "");  // half a character
  const auto other = EventsOf(stream.Take({.completion = 1, .finish = FinishReason::kLength}));
  EXPECT_EQ(other.at(0)["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(other.at(0)["choices"][0]["delta"], Json::object());
  // The last one waits for the times.
  Chunk chunk = Say("ho");
  chunk.finish = FinishReason::kStop;
  EXPECT_EQ(EventsOf(stream.Take(chunk)).at(0)["choices"][0]["finish_reason"], nullptr);
  const auto last = EventsOf(stream.End({.prompt_tokens = 3}));
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last[0]["timings"]["prompt_n"], 3);
  EXPECT_EQ(last[1], "[DONE]");
}

TEST_F(OpenAiFormatTest, UsageComesOnceAndOnlyWhereItIsAskedFor) {
  OpenAiFormat stream = Open({.has_stream_usage = true});
  EXPECT_EQ(EventsOf(stream.Begin()).at(0)["usage"], nullptr);
  Report report{.prompt_tokens = 5, .completion_tokens = 2};
  report.prompt.ram = 3;
  report.receipt = R"({"digest": "x"})";
  const auto events = EventsOf(stream.End(report));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["choices"], Json::array());
  EXPECT_EQ(events[0]["usage"]["total_tokens"], 7);
  EXPECT_EQ(events[0]["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(events[0]["kvern_receipt"]["digest"], "x");
}

TEST_F(OpenAiFormatTest, OffsetsOfACompletionGoOn) {
  OpenAiFormat stream =
      Open({.endpoint = Endpoint::kCompletions, .num_choices = 2, .has_logprobs = true});
  EXPECT_EQ(stream.Begin(), "");
  EventsOf(stream.Take(Say("abc", 0)));
  EventsOf(stream.Take(Say("x", 1)));
  const auto events = EventsOf(stream.Take(Say("de", 0)));
  const Json& choice = events.at(0)["choices"][0];
  EXPECT_EQ(choice["text"], "de");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({3, 4}));
  EXPECT_EQ(choice["logprobs"]["tokens"], Json({"d", "e"}));
}

TEST_F(OpenAiFormatTest, TokenIdsComeWithEveryTokenThoughItHasNoText) {
  OpenAiFormat stream = Open({.endpoint = Endpoint::kCompletions, .has_token_ids = true});
  const auto words = EventsOf(stream.Take(Say("hi")));
  EXPECT_EQ(words.at(0)["choices"][0]["token_ids"], Json({'h', 'i'}));
  const auto half = EventsOf(stream.Take({.completion = 0, .tokens = Say("x").tokens}));
  EXPECT_EQ(half.at(0)["choices"][0]["token_ids"], Json({'x'}));
  EXPECT_EQ(half.at(0)["choices"][0]["text"], "");
  EXPECT_EQ(stream.Take({.completion = 0, .finish = FinishReason::kLength}), "");
  const auto last = EventsOf(stream.End({}));
  EXPECT_EQ(last.at(0)["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(last.at(0)["choices"][0].contains("token_ids"));
}

TEST_F(OpenAiFormatTest, AFailureIsAnEvent) {
  OpenAiFormat stream = Open({});
  EXPECT_EQ(stream.Take({.completion = 0, .finish = FinishReason::kFailed}), "");
  const auto events = EventsOf(stream.End({.error = Error{ErrorCode::kNonFinite, "broken"}}));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["error"]["message"], "broken");
  EXPECT_EQ(events[1], "[DONE]");
}

TEST(Routes, AreFoundWithAndWithoutTheVersion) {
  EXPECT_EQ(FindRoute("POST", "/v1/chat/completions").route->path, "/v1/chat/completions");
  EXPECT_EQ(FindRoute("POST", "/chat/completions").route->path, "/v1/chat/completions");
  EXPECT_EQ(FindRoute("GET", "/v1/health").route->path, "/health");
  EXPECT_EQ(FindRoute("POST", "/v1/completions").route->path, "/v1/completions");
  EXPECT_EQ(FindRoute("POST", "/completions").route->path, "/completions");
  EXPECT_EQ(FindRoute("HEAD", "/health").route->path, "/health");
  EXPECT_EQ(FindRoute("GET", "/v1/chat/completions").route, nullptr);
  EXPECT_EQ(FindRoute("GET", "/v1/chat/completions").allowed, "POST");
  EXPECT_EQ(FindRoute("GET", "/v2/models").route, nullptr);
  EXPECT_EQ(FindRoute("GET", "/v1/v1/models").allowed, "");
}

}  // namespace
}  // namespace kvern::server
