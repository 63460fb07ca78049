#include "server/http/reply_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

using testing::HasSubstr;

struct ReadReply {
  ReplyReader reader;
  std::string body = {};
  std::string left = {};
};

// Gives `text` in pieces of so many bytes, as a connection does.
void FeedReply(ReadReply& read, std::string_view text, size_t piece) {
  for (size_t i = 0; i < text.size(); i += piece) {
    read.left += text.substr(i, piece);
    read.left.erase(0, read.reader.Feed(read.left));
    read.body += read.reader.TakeBody();
  }
}

std::string FailureOf(std::string_view text, const ReadLimits& limits = {}) {
  ReadReply read{ReplyReader(limits)};
  FeedReply(read, text, text.size());
  if (!read.reader.failure()) read.reader.FeedClose();
  return read.reader.failure() ? read.reader.failure()->message : "";
}

TEST(ReplyReader, ReadsABodyOfItsLengthInPiecesOfAnySize) {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nX-One:  two \r\nContent-Length: "
      "5\r\n\r\nhelloHTTP/1.1 200";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ReadReply read{ReplyReader(ReadLimits{})};
    FeedReply(read, text, piece);
    ASSERT_TRUE(read.reader.is_done()) << piece;
    EXPECT_EQ(read.left, "HTTP/1.1 200");
    EXPECT_EQ(read.body, "hello");
    EXPECT_EQ(read.reader.head().status, 404);
    EXPECT_EQ(read.reader.head().Header("x-ONE"), "two");
    EXPECT_TRUE(read.reader.keeps_alive());
  }
}

// Beast 1.74 asserts where the last chunk's size and its line end come apart.
TEST(ReplyReader, ReadsChunksInPiecesOfAnySize) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=\"a\"\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nTrailer: t\r\n\r\nrest";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ReadReply read{ReplyReader(ReadLimits{})};
    FeedReply(read, text, piece);
    ASSERT_TRUE(read.reader.is_done()) << piece;
    EXPECT_EQ(read.body, "abc0123456789abcdef");
    EXPECT_EQ(read.left, "rest");
  }
}

TEST(ReplyReader, GivesTheBodyAsItComes) {
  ReadReply read{ReplyReader(ReadLimits{})};
  FeedReply(read, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", 1000);
  EXPECT_EQ(read.body, "he");
  EXPECT_FALSE(read.reader.is_done());
  FeedReply(read, "llo\r\n", 1000);
  EXPECT_EQ(read.body, "hello");
}

TEST(ReplyReader, ABodyWithoutALengthEndsWithTheConnection) {
  ReadReply read{ReplyReader(ReadLimits{})};
  FeedReply(read, "HTTP/1.0 200 OK\r\n\r\nall of it", 1000);
  EXPECT_FALSE(read.reader.is_done());
  read.reader.FeedClose();
  EXPECT_TRUE(read.reader.is_done());
  EXPECT_FALSE(read.reader.failure());
  EXPECT_FALSE(read.reader.keeps_alive());
  EXPECT_EQ(read.body, "all of it");
}

TEST(ReplyReader, SomeRepliesHaveNoBody) {
  ReadReply to_head{ReplyReader(ReadLimits{}, /*has_body=*/false)};
  FeedReply(to_head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 1000);
  EXPECT_TRUE(to_head.reader.is_done());
  ReadReply no_content{ReplyReader(ReadLimits{})};
  FeedReply(no_content, "HTTP/1.1 204 No Content\r\n\r\n", 1000);
  EXPECT_TRUE(no_content.reader.is_done());
}

TEST(ReplyReader, SaysWhatIsNoReply) {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  EXPECT_THAT(FailureOf("SSH-2.0-OpenSSH_9.2\r\n\r\n"), HasSubstr("no HTTP/1.1 reply"));
  EXPECT_THAT(FailureOf(""), HasSubstr("before a reply came"));
  EXPECT_THAT(FailureOf(head + "Content-Le"), HasSubstr("before a reply came"));
  EXPECT_THAT(FailureOf(head + "Content-Length: 5\r\n\r\nhi"), HasSubstr("before the end"));
  EXPECT_THAT(FailureOf(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
              HasSubstr("before the end"));
  EXPECT_THAT(FailureOf(head + "Transfer-Encoding: gzip\r\n\r\n"), HasSubstr("must be chunked"));
  EXPECT_THAT(FailureOf(head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
              HasSubstr("does not begin with its size"));
  EXPECT_THAT(FailureOf(head + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"),
              HasSubstr("longer than it says"));
  EXPECT_NE(FailureOf(head + "Content-Length: 5, 5\r\n\r\nhello"), "");
}

TEST(ReplyReader, KeepsItsBounds) {
  const ReadLimits limits{.max_header_bytes = 64, .max_body_bytes = 10};
  const std::string head = "HTTP/1.1 200 OK\r\n";
  EXPECT_THAT(FailureOf(head + "X: " + std::string(100, 'x'), limits), HasSubstr("64 bytes"));
  EXPECT_THAT(FailureOf(head + "Content-Length: 11\r\n\r\n", limits), HasSubstr("10 bytes"));
  EXPECT_THAT(FailureOf(head + "\r\n12345678901", limits), HasSubstr("10 bytes"));
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(FailureOf(chunked + "5\r\n12345\r\n6\r\n", limits), HasSubstr("10 bytes"));
  EXPECT_THAT(FailureOf(chunked + "5;" + std::string(100, 'x'), limits), HasSubstr("too long"));
  EXPECT_THAT(FailureOf(chunked + "ffffffffffffffff\r\n", limits), HasSubstr("10 bytes"));
}

}  // namespace
}  // namespace kvern::server
