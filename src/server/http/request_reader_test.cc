#include "server/http/request_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

// Gives it `text` in pieces of so many bytes, as a connection does. Returns what is left.
std::string FeedInPieces(RequestReader& reader, std::string_view text, size_t piece) {
  std::string input;
  for (size_t i = 0; i < text.size(); i += piece) {
    input += text.substr(i, piece);
    input.erase(0, reader.Feed(input));
  }
  return input;
}

int StatusOf(std::string_view text, ReadLimits limits = {}) {
  RequestReader reader(limits);
  FeedInPieces(reader, text, text.size());
  return reader.failure() ? reader.failure()->status : reader.is_done() ? 200 : 0;
}

std::string Get(std::string_view headers) {
  return fmt::format("GET / HTTP/1.1\r\n{}\r\n", headers);
}

TEST(RequestReader, ReadsARequestInPiecesOfAnySize) {
  const std::string text =
      "POST /a/b?x=1&y HTTP/1.1\r\nHost: h\r\nX-One:  two \r\nContent-Length: 5\r\n\r\nhello"
      "GET /next";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    RequestReader reader(ReadLimits{});
    EXPECT_EQ(FeedInPieces(reader, text, piece), "GET /next");
    ASSERT_TRUE(reader.is_done()) << piece;
    EXPECT_TRUE(reader.keeps_alive());
    const HttpRequest request = reader.Take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/a/b");
    EXPECT_EQ(request.query, "x=1&y");
    EXPECT_EQ(request.Header("x-ONE"), "two");
    EXPECT_EQ(request.body, "hello");
  }
}

TEST(RequestReader, ReadsChunksInPiecesOfAnySize) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=\"a\"\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nTrailer: t\r\n\r\nrest";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    RequestReader reader(ReadLimits{});
    EXPECT_EQ(FeedInPieces(reader, text, piece), "rest");
    ASSERT_TRUE(reader.is_done()) << piece;
    EXPECT_EQ(reader.Take().body, "abc0123456789abcdef");
  }
}

// Beast's parser stopped the program here.
TEST(RequestReader, TheLastChunkMayComeInPieces) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    RequestReader reader(ReadLimits{});
    EXPECT_EQ(FeedInPieces(reader, text, piece), "G");
    EXPECT_TRUE(reader.is_done());
  }
}

TEST(RequestReader, ChunksSayTheirSizeInHexDigits) {
  const auto status_of = [](std::string_view chunks) {
    return StatusOf(fmt::format(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunks));
  };
  EXPECT_EQ(status_of("1\r\na\r\n"), 200);
  EXPECT_EQ(status_of("0001 ; x\r\na\r\n"), 200);
  for (const char* const chunks :
       {"+1\r\na\r\n", "-1\r\na\r\n", "0x1\r\na\r\n", " 1\r\na\r\n", "1 a\r\na\r\n", "1\na\r\n",
        "2\r\na\r\n", "1\r\nab\r\n", "\r\n", ";\r\n", "10000000000000000\r\n"}) {
    EXPECT_EQ(status_of(chunks), 400) << chunks;
  }
  EXPECT_EQ(status_of("FFFFFFFFFFFFFFFF\r\n"), 413);
}

TEST(RequestReader, RefusesWhatAProxyCouldReadOtherwise) {
  EXPECT_EQ(StatusOf(Get("Host: h\r\n")), 200);
  EXPECT_EQ(StatusOf(Get("")), 400);
  EXPECT_EQ(StatusOf(Get("Host: h\r\nHost: h\r\n")), 400);
  EXPECT_EQ(StatusOf(Get("Host: h\r\nX: a\r\n b\r\n")), 400);
  EXPECT_EQ(StatusOf(Get("Host: h\r\nX: a\r\n\tb\r\n")), 400);
  EXPECT_EQ(StatusOf(Get("Host : h\r\n")), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\nHost: h\n\n"), 0);  // waits for an end of lines
  EXPECT_EQ(StatusOf("GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

TEST(RequestReader, RefusesAmbiguousLengths) {
  const auto post = [](std::string_view headers, std::string_view version = "1.1") {
    return StatusOf(fmt::format("POST / HTTP/{}\r\nHost: h\r\n{}\r\n0\r\n\r\n", version, headers));
  };
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\n"), 200);
  EXPECT_EQ(post("Transfer-Encoding: Chunked\r\n"), 200);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\n", "1.0"), 400);
  EXPECT_EQ(post("Transfer-Encoding: gzip, chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked, identity\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: xchunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: identity\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 5, 5\r\n"), 400);
  EXPECT_EQ(post("Content-Length: +5\r\n"), 400);
  EXPECT_EQ(post("Content-Length: -1\r\n"), 400);
  EXPECT_EQ(post("Content-Length: 99999999999999999999\r\n"), 400);
}

TEST(RequestReader, BoundsHeadersBodiesChunksAndTrailers) {
  const ReadLimits limits{.max_header_bytes = 200, .max_body_bytes = 8};
  const std::string filler(300, 'x');
  const std::string chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf("GET /" + filler, limits), 431);
  EXPECT_EQ(StatusOf(Get("Host: h\r\nX: " + filler), limits), 431);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n", limits), 413);
  EXPECT_EQ(StatusOf(chunked + "9\r\n123456789\r\n0\r\n\r\n", limits), 413);
  EXPECT_EQ(StatusOf(chunked + "5\r\n12345\r\n5\r\n12345\r\n0\r\n\r\n", limits), 413);
  EXPECT_EQ(StatusOf(chunked + "1;" + filler, limits), 431);
  EXPECT_EQ(StatusOf(chunked + "0\r\nX: " + filler, limits), 431);
  EXPECT_EQ(StatusOf(chunked + "xyz\r\n", limits), 400);
}

TEST(RequestReader, KnowsWhatTheClientExpects) {
  RequestReader reader(ReadLimits{});
  reader.Feed("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n");
  EXPECT_TRUE(reader.has_head());
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_FALSE(reader.is_done());
  EXPECT_EQ(StatusOf(Get("Host: h\r\nExpect: a miracle\r\n")), 417);
}

TEST(RequestReader, KnowsWhetherTheConnectionGoesOn) {
  const auto keeps_alive = [](std::string_view version, std::string_view connection) {
    RequestReader reader(ReadLimits{});
    reader.Feed(fmt::format("GET / HTTP/{}\r\nHost: h\r\n{}\r\n", version, connection));
    return reader.is_done() && reader.keeps_alive();
  };
  EXPECT_TRUE(keeps_alive("1.1", ""));
  EXPECT_FALSE(keeps_alive("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps_alive("1.0", ""));
  EXPECT_TRUE(keeps_alive("1.0", "Connection: keep-alive\r\n"));
}

}  // namespace
}  // namespace kvern::server
