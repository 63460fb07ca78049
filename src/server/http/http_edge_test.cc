// Replies, and who is answered at all.
#include <gtest/gtest.h>

#include "server/http/origin_check.h"
#include "server/http/reply_format.h"

namespace kvern::server {
namespace {

TEST(ReplyFormat, HasALengthOrChunks) {
  const HttpReply reply{.headers = {{"X-A", "b"}}, .body = "{}"};
  EXPECT_EQ(FormatReply(reply, {}),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-A: b\r\nContent-Length: "
            "2\r\n\r\n{}");
  EXPECT_EQ(FormatReply({.content_type = "a/b"}, {.end = BodyEnd::kChunks}),
            "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(FormatReply(reply, {.closes = true, .has_body = false}),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-A: b\r\nContent-Length: "
            "2\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(FormatReply({.status = 204, .content_type = ""}, {}),
            "HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(FormatChunk("hello, hello, hello"), "13\r\nhello, hello, hello\r\n");
}

TEST(ReplyFormat, AHeaderCannotBeginAnother) {
  const HttpReply reply{.content_type = "", .headers = {{"X-A", "b\r\nX-Evil: c"}}};
  EXPECT_EQ(FormatReply(reply, {}), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

std::optional<std::string> Check(std::string host, std::optional<std::string> origin = {},
                                 const OriginRules& rules = {}) {
  HttpRequest head{.headers = {{"host", std::move(host)}}};
  if (origin) head.headers.push_back({"origin", *origin});
  return CheckOrigin(head, rules);
}

TEST(OriginCheck, ServesThisMachineByItsNamesAndAddresses) {
  for (const char* const host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "192.168.1.7:80"}) {
    EXPECT_EQ(Check(host), std::nullopt) << host;
  }
  for (const char* const host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                                 "localhost:x", "[::1", "[::1]x", "", "user@localhost"}) {
    EXPECT_NE(Check(host), std::nullopt) << host;
  }
  EXPECT_EQ(Check("llm.example:8080", {}, {.hosts = {"LLM.example"}}), std::nullopt);
  EXPECT_EQ(Check("any.example", {}, {.hosts = {"*"}}), std::nullopt);
}

TEST(OriginCheck, ServesPagesOfThisMachineAndThoseThatAreNamed) {
  for (const char* const origin :
       {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:80"}) {
    EXPECT_EQ(Check("localhost", origin), std::nullopt) << origin;
  }
  for (const char* const origin : {"null", "https://evil.example", "http://localhost.evil.example",
                                   "file://localhost", "http://localhost@evil.example"}) {
    EXPECT_NE(Check("localhost", origin), std::nullopt) << origin;
  }
  EXPECT_EQ(Check("192.168.1.7:80", "http://192.168.1.7:80"), std::nullopt);  // its own page
  EXPECT_NE(Check("192.168.1.7:80", "http://192.168.1.8:80"), std::nullopt);
  EXPECT_NE(Check("evil.example", "http://evil.example"), std::nullopt);
  EXPECT_EQ(Check("localhost", "https://a.example", {.origins = {"https://a.example"}}),
            std::nullopt);
}

}  // namespace
}  // namespace kvern::server
