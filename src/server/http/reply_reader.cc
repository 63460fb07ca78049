#include "server/http/reply_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "server/http/ascii.h"

namespace kvern::server {

namespace http = boost::beast::http;

namespace {

constexpr std::string_view kReplyHeadEnd = "\r\n\r\n";
constexpr int kBadGateway = 502;  // what a server in between would call it
constexpr int kSwitchingProtocols = 101, kNoContent = 204, kNotModified = 304;

bool IsInformation(int status) { return status < 200 && status != kSwitchingProtocols; }

}  // namespace

std::optional<std::string_view> ReplyHead::Header(std::string_view name) const {
  const auto found = std::ranges::find_if(
      headers, [name](const HttpHeader& header) { return EqualsIgnoringCase(header.name, name); });
  return found == headers.end() ? std::nullopt : std::optional<std::string_view>(found->value);
}

void ReplyReader::Fail(std::string message) {
  failure_ = ReadFailure{kBadGateway, std::move(message)};
}

size_t ReplyReader::Feed(std::string_view bytes) {
  size_t taken = 0;
  // Replies of information may precede the one that counts.
  while (!failure_ && !has_head()) {
    const size_t now = FeedHead(bytes.substr(taken));
    taken += now;
    if (now == 0) break;
  }
  if (failure_ || !has_head() || is_done()) return taken;
  taken += body_->Feed(bytes.substr(taken), pending_);
  failure_ = body_->failure();
  return taken;
}

void ReplyReader::FeedClose() {
  if (failure_ || is_done()) return;
  if (body_ && body_->ends_with_connection()) {
    is_closed_ = true;
  } else {
    Fail(has_head() ? "the connection was closed before the end of the reply"
                    : "the connection was closed before a reply came");
  }
}

size_t ReplyReader::FeedHead(std::string_view bytes) {
  const size_t end = bytes.substr(0, limits_.max_header_bytes).find(kReplyHeadEnd);
  if (end == bytes.npos) {
    if (bytes.size() >= limits_.max_header_bytes) {
      Fail(fmt::format("the headers are longer than {} bytes", limits_.max_header_bytes));
    }
    return 0;
  }
  const std::string_view head = bytes.substr(0, end + kReplyHeadEnd.size());
  http::response_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
  parser.body_limit(std::numeric_limits<uint64_t>::max());  // BodyReader knows it
  boost::beast::error_code error;
  size_t taken = 0;
  // It stops once between the status line and the headers.
  while (taken < head.size() && !parser.is_header_done() && !error) {
    const size_t now =
        parser.put(boost::asio::buffer(head.data() + taken, head.size() - taken), error);
    taken += now;
    if (now == 0) break;
  }
  if (error || !parser.is_header_done()) {
    Fail(fmt::format("no HTTP/1.1 reply: {}", error ? error.message() : "it has no end"));
    return head.size();
  }
  const auto& message = parser.get();
  if (IsInformation(static_cast<int>(message.result_int()))) return head.size();
  head_.status = static_cast<int>(message.result_int());
  for (const auto& field : message) {
    const auto name = field.name_string();
    head_.headers.push_back(
        {{name.data(), name.size()}, {field.value().data(), field.value().size()}});
  }
  keeps_alive_ = message.keep_alive();
  BeginBody();
  return head.size();
}

void ReplyReader::BeginBody() {
  auto end = BodyReader::End::kClose;
  uint64_t num_bytes = 0;
  const auto encoding = head_.Header("Transfer-Encoding");
  const auto length = head_.Header("Content-Length");
  if (!has_body_ || head_.status == kNoContent || head_.status == kNotModified) {
    end = BodyReader::End::kNone;
  } else if (encoding) {
    if (!EqualsIgnoringCase(*encoding, "chunked") || length) {
      return Fail("Transfer-Encoding must be chunked, and without a Content-Length");
    }
    end = BodyReader::End::kChunks;
  } else if (length) {
    end = BodyReader::End::kLength;
    const auto [last, error] =
        std::from_chars(length->data(), length->data() + length->size(), num_bytes);
    if (!IsDigits(*length) || error != std::errc()) return Fail("Content-Length is no number");
  }
  if (end == BodyReader::End::kClose) keeps_alive_ = false;
  body_.emplace(limits_, end, num_bytes);
  failure_ = body_->failure();
}

std::string ReplyReader::TakeBody() { return std::exchange(pending_, {}); }

}  // namespace kvern::server
