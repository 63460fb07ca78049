#include "server/http/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>

#include "server/http/http_server.h"

namespace kvern::server {
namespace {

using testing::HasSubstr;

// Says how many connections it has seen, and repeats what it is sent.
class HttpClientTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpCallbacks callbacks;
    callbacks.check_head = [](const HttpRequest&) { return std::nullopt; };
    callbacks.make_error = [](int status, const std::string& message) {
      return HttpReply{.status = status, .body = message};
    };
    callbacks.handle = [this](HttpRequest request, const std::shared_ptr<HttpSink>& sink) {
      if (request.path == "/v/wait") {
        sink_ = sink;
        sink->OnClosed([this] { closed_.set_value(); });
        sink->Begin({});
        return sink->Write("some");
      }
      sink->Begin({.status = 201});
      sink->Write(request.method + " " + request.path);
      if (!request.body.empty()) sink->Write(request.body);
      sink->End();
    };
    auto server = HttpServer::Listen({.host = "127.0.0.1"}, {}, std::move(callbacks));
    ASSERT_TRUE(server.ok());
    server_ = std::move(server).value();
    client_ = Open(server_->port());
  }

  static std::unique_ptr<HttpClient> Open(uint16_t port, const ClientLimits& limits = {}) {
    auto client = HttpClient::Open({.host = "127.0.0.1", .port = port, .path = "/v"}, limits);
    EXPECT_TRUE(client.ok());
    return std::move(client).value();
  }

  std::promise<void> closed_;
  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<HttpSink> sink_;  // gone before its server
  std::unique_ptr<HttpClient> client_;
};

TEST_F(HttpClientTest, AsksOneThingAfterAnotherOnOneConnection) {
  for (int i = 0; i < 3; ++i) {
    const auto reply = client_->Ask({.method = "POST", .target = "/a", .body = "body"});
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->status, 201);
    EXPECT_EQ(reply->body, "POST /v/abody");
  }
  EXPECT_EQ(server_->counters().accepted, 1u);
}

TEST_F(HttpClientTest, AServerThatHasStoppedStillTellsItsCounters) {
  ASSERT_TRUE(client_->Ask({.target = "/a"}).ok());
  server_->Stop();
  EXPECT_EQ(server_->counters().accepted, 1u);
  EXPECT_EQ(server_->counters().connections, 0u);
  server_->Drain();
}

TEST_F(HttpClientTest, AConnectionThatWasClosedMeanwhileIsOpenedAgain) {
  ASSERT_TRUE(client_->Ask({.target = "/a"}).ok());
  const uint16_t port = server_->port();
  server_.reset();
  HttpCallbacks callbacks;
  callbacks.check_head = [](const HttpRequest&) { return std::nullopt; };
  callbacks.make_error = [](int, const std::string&) { return HttpReply{}; };
  callbacks.handle = [](HttpRequest, const std::shared_ptr<HttpSink>& sink) {
    sink->Send({.body = "another"});
  };
  const auto server = HttpServer::Listen({.host = "127.0.0.1", .port = port}, {}, callbacks);
  ASSERT_TRUE(server.ok()) << server.error().message;
  const auto reply = client_->Ask({.target = "/a"});
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->body, "another");
}

TEST_F(HttpClientTest, AStreamComesInPiecesAndCanBeCancelled) {
  std::promise<std::string> piece;
  std::promise<Status> ended;
  const uint64_t id = client_->Start(
      {.target = "/wait"},
      {.on_body = [&](std::string_view bytes) { piece.set_value(std::string(bytes)); },
       .on_end = [&](Status status) { ended.set_value(std::move(status)); }});
  EXPECT_EQ(piece.get_future().get(), "some");
  client_->Cancel(id);
  const Status status = ended.get_future().get();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("/v/wait: cancelled"));
  closed_.get_future().wait();
  client_->Cancel(id);  // has ended: nothing happens
}

TEST_F(HttpClientTest, DestroyingItEndsWhatIsUnderWay) {
  std::promise<void> began;
  std::promise<Status> ended;
  client_->Start({.target = "/wait"},
                 {.on_head = [&](const ReplyHead&) { began.set_value(); },
                  .on_end = [&](Status status) { ended.set_value(std::move(status)); }});
  began.get_future().wait();
  client_.reset();
  EXPECT_FALSE(ended.get_future().get().ok());
}

TEST_F(HttpClientTest, SaysThatNobodyListens) {
  const uint16_t port = server_->port();
  server_.reset();
  const auto reply = Open(port)->Ask({.target = "/a"});
  ASSERT_FALSE(reply.ok());
  EXPECT_THAT(
      reply.error().message,
      HasSubstr(fmt::format("http://127.0.0.1:{}/v/a: cannot connect: Connection refused", port)));
}

// A server that takes one connection and says these bytes, byte by byte or all at once.
std::string AnswerOfRawServer(std::string_view bytes, bool in_pieces, bool closes = true) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::promise<void> done;
  std::thread server([&] {
    const int connection = ::accept(listener, nullptr, nullptr);
    char request[4096];
    EXPECT_GT(::read(connection, request, sizeof(request)), 0);
    const size_t piece = in_pieces ? 1 : std::max<size_t>(1, bytes.size());
    for (size_t i = 0; i < bytes.size(); i += piece) {
      (void)::send(connection, bytes.data() + i, std::min(piece, bytes.size() - i), MSG_NOSIGNAL);
    }
    if (!closes) done.get_future().wait();
    ::close(connection);
  });
  auto client = HttpClient::Open({.host = "127.0.0.1", .port = ntohs(address.sin_port)},
                                 {.read_timeout_us = 100'000});
  const auto reply = (*client)->Ask({.target = "/"});
  done.set_value();
  server.join();
  ::close(listener);
  return reply.ok() ? reply->body : "error: " + reply.error().message;
}

TEST(HttpClient, ReadsWhatComesByteByByte) {
  EXPECT_EQ(AnswerOfRawServer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "2\r\nhi\r\n0\r\n\r\n",
                              /*in_pieces=*/true),
            "hi");
}

TEST(HttpClient, SaysWhatIsWrongWithBytes) {
  EXPECT_THAT(AnswerOfRawServer("220 mail.example ESMTP\r\n\r\n", false),
              HasSubstr("/: no HTTP/1.1 reply"));
  EXPECT_THAT(AnswerOfRawServer("", false), HasSubstr("closed before a reply came"));
  EXPECT_THAT(AnswerOfRawServer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", false),
              HasSubstr("closed before the end of the reply"));
  EXPECT_THAT(AnswerOfRawServer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", false,
                                /*closes=*/false),
              HasSubstr("nothing came for 0.1 s"));
}

TEST(ParseHttpUrl, TakesHostPortAndPath) {
  const auto url = ParseHttpUrl("http://[::1]:8080/llm/");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->path, "/llm");
  EXPECT_EQ(url->ToString(), "http://[::1]:8080/llm");
  EXPECT_EQ(ParseHttpUrl("http://localhost")->ToString(), "http://localhost:80");
  for (const char* const text :
       {"localhost:8080", "https://a", "http://", "http://a:b", "http://a:0", "http://a:70000",
        "http://a?b", "http://a b", "http://u@a", "http://[::1", "http://a:"}) {
    EXPECT_FALSE(ParseHttpUrl(text).ok()) << text;
  }
}

}  // namespace
}  // namespace kvern::server
