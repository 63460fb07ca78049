#include "cli/serve_url_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "server/http/http_server.h"

namespace kvern::cli {
namespace {

using server::HttpReply;
using server::HttpRequest;
using server::HttpSink;
using testing::HasSubstr;

std::string MessageOf(const AnswerEnd& end) { return end.error ? end.error->message : ""; }

// A server that says what the test puts down for each path.
class UrlTargetTest : public testing::Test {
 protected:
  void SetUp() override {
    server::HttpCallbacks callbacks;
    callbacks.check_head = [](const HttpRequest&) { return std::nullopt; };
    callbacks.make_error = [](int status, const std::string& message) {
      return HttpReply{.status = status, .body = message};
    };
    callbacks.handle = [this](const HttpRequest& request, const std::shared_ptr<HttpSink>& sink) {
      key_ = std::string(request.Header("Authorization").value_or(""));
      body_ = request.body;
      const auto found = replies_.find(request.path);
      if (found == replies_.end()) return sink->Send({.status = 404, .body = "not here"});
      if (!holds_) return sink->Send(found->second);
      sink->Begin({.status = found->second.status});
      sink->Write(found->second.body);
      sink_ = sink;
    };
    auto server = server::HttpServer::Listen({.host = "127.0.0.1"}, {}, std::move(callbacks));
    ASSERT_TRUE(server.ok());
    server_ = std::move(server).value();
    replies_["/v1/models"] = {.body = R"({"data":[{"id":"tiny"}]})"};
  }

  std::unique_ptr<ServeTarget> Open() {
    auto target = OpenUrlTarget({.url = server_->url(), .api_key = "secret"});
    EXPECT_TRUE(target.ok());
    return std::move(target).value();
  }

  // What becomes of a request whose reply this is.
  AnswerEnd EndOf(HttpReply reply, bool needs_tokens = false) {
    replies_["/v1/completions"] = std::move(reply);
    const auto target = Open();
    return target
        ->Ask({.prompt = {TokenId{7}}, .new_tokens = 2, .needs_tokens = needs_tokens},
              [this](const AnswerPiece& piece) { num_tokens_ += piece.num_tokens; })
        ->Wait();
  }

  // The server's thread writes them; a test reads after a reply, or writes before a request.
  std::map<std::string, HttpReply> replies_;
  std::string key_, body_;
  bool holds_ = false;  // begins a reply and does not end it
  std::shared_ptr<HttpSink> sink_;

  size_t num_tokens_ = 0;
  std::unique_ptr<server::HttpServer> server_;
};

constexpr const char* kTwoTokens =
    "data: {\"choices\":[{\"text\":\" a\",\"token_ids\":[5]}]}\n\n"
    "data: {\"choices\":[{\"text\":\" b\",\"token_ids\":[6],\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2,\"prompt_tokens_details\":"
    "{\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n";

TEST_F(UrlTargetTest, AsksForAStreamAndReadsIt) {
  const AnswerEnd end = EndOf({.body = kTwoTokens});
  EXPECT_EQ(end.outcome, Outcome::kDone) << MessageOf(end);
  EXPECT_EQ(end.num_tokens, 2u);
  EXPECT_EQ(end.cached_tokens, 1u);
  EXPECT_EQ(num_tokens_, 2u);
  EXPECT_EQ(key_, "Bearer secret");
  EXPECT_THAT(body_, HasSubstr("\"prompt\":[7],\"max_tokens\":2,\"temperature\":0"));
  EXPECT_THAT(body_, HasSubstr("\"return_token_ids\":true,\"model\":\"tiny\""));
}

TEST_F(UrlTargetTest, TextWithoutIdsIsTokenizedWhereALaterPromptQuotesIt) {
  replies_["/tokenize"] = {.body = R"({"tokens":[8,9]})"};
  const HttpReply reply{.body = "data: {\"choices\":[{\"text\":\" ab\"}]}\n\ndata: [DONE]\n\n"};
  EXPECT_TRUE(EndOf(reply).tokens.empty());
  const AnswerEnd end = EndOf(reply, /*needs_tokens=*/true);
  EXPECT_EQ(end.outcome, Outcome::kDone) << MessageOf(end);
  ASSERT_EQ(end.tokens.size(), 2u);
  EXPECT_EQ(end.tokens[1].id, TokenId{9});
  EXPECT_EQ(body_, R"({"content":" ab","add_special":false})");
}

TEST_F(UrlTargetTest, SaysHowARequestFailed) {
  const AnswerEnd busy = EndOf({.status = 503, .body = R"({"error":{"message":"full"}})"});
  EXPECT_EQ(busy.outcome, Outcome::kRefused);
  EXPECT_EQ(busy.failed_by, "503");
  EXPECT_EQ(MessageOf(busy), "503 Service Unavailable: full");
  const AnswerEnd wrong = EndOf({.status = 400, .body = "what?"});
  EXPECT_EQ(wrong.outcome, Outcome::kFailed);
  EXPECT_EQ(MessageOf(wrong), "400 Bad Request: what?");
  const AnswerEnd broken = EndOf({.body = "data: {\"error\":{\"message\":\"NaN\"}}\n\n"});
  EXPECT_EQ(broken.failed_by, "in the stream");
  EXPECT_EQ(MessageOf(broken), "NaN");
  EXPECT_THAT(MessageOf(EndOf({.body = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"})),
              HasSubstr("has no end"));
  EXPECT_THAT(MessageOf(EndOf({.body = R"({"choices":[{"text":"a"}]})"})), HasSubstr("has no end"));
}

TEST_F(UrlTargetTest, CancellingEndsAnAnswerAsPlanned) {
  const auto target = Open();
  replies_["/v1/completions"] = {.body = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"};
  holds_ = true;
  std::promise<void> began;
  const auto answer = target->Ask({.prompt = {TokenId{7}}, .new_tokens = 2},
                                  [&began](const AnswerPiece&) { began.set_value(); });
  began.get_future().wait();
  answer->Cancel();
  EXPECT_EQ(answer->Wait().outcome, Outcome::kEnded);
}

TEST_F(UrlTargetTest, AServerThatIsNoneIsNamed) {
  for (const auto& [reply, message] :
       {std::pair<HttpReply, std::string>{
            {.status = 401, .body = R"({"error":{"message":"no"}})"},
            "/v1/models: 401 Unauthorized: no: give another --api-key"},
        {{.status = 404, .body = "nothing"}, "/v1/models: 404 Not Found: nothing"}}) {
    replies_["/v1/models"] = reply;
    const auto target = OpenUrlTarget({.url = server_->url()});
    ASSERT_FALSE(target.ok());
    EXPECT_EQ(target.error().message, server_->url() + message);
  }
}

TEST_F(UrlTargetTest, WithoutATokenizerItAsksForTheModelFile) {
  const auto target = Open();
  const auto tokens = target->Encode("text", true);
  ASSERT_FALSE(tokens.ok());
  EXPECT_THAT(tokens.error().message, HasSubstr("/tokenize: 404 Not Found: not here: give the"));
  replies_["/tokenize"] = {.body = R"({"count":3})"};
  EXPECT_THAT(target->Encode("text", true).error().message, HasSubstr("the reply has no tokens"));
}

TEST_F(UrlTargetTest, TellsOfItsEngineWhatMetricsTell) {
  EXPECT_EQ(Open()->view(), EngineView::kNothing);
  replies_["/metrics"] = {.body = "kvern_kv_budget_bytes 9\nkvern_kv_bytes{state=\"free\"} 7\n"};
  const auto target = Open();
  ASSERT_EQ(target->view(), EngineView::kMetrics);
  replies_["/metrics"].body = "kvern_kv_budget_bytes 9\nkvern_kv_bytes{state=\"free\"} 5\n";
  const auto stats = target->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->kv.bytes.free, 5u);
  EXPECT_EQ(stats->kv.peak_bytes.free, 7u);
}

}  // namespace
}  // namespace kvern::cli
