#include "server/http/request_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "base/check.h"
#include "server/http/ascii.h"

namespace kvern::server {

namespace http = boost::beast::http;
using boost::beast::error_code;

namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

std::string ToString(boost::beast::string_view text) { return {text.data(), text.size()}; }

size_t CountHeaders(const HttpRequest& request, std::string_view name) {
  return static_cast<size_t>(std::ranges::count_if(
      request.headers,
      [name](const HttpHeader& header) { return EqualsIgnoringCase(header.name, name); }));
}

bool HasFoldedLine(std::string_view head) {
  return head.find("\r\n ") != head.npos || head.find("\r\n\t") != head.npos;
}

}  // namespace

void RequestReader::Fail(int status, std::string message) {
  failure_ = ReadFailure{status, std::move(message)};
}

size_t RequestReader::Feed(std::string_view bytes) {
  size_t taken = 0;
  if (failure_) return 0;
  if (!has_head()) {
    // An empty line may precede a request.
    while (bytes.substr(taken).starts_with(kLineEnd)) taken += kLineEnd.size();
    taken += FeedHead(bytes.substr(taken));
  }
  if (failure_ || !has_head()) return taken;
  taken += body_->Feed(bytes.substr(taken), request_.body);
  failure_ = body_->failure();
  return taken;
}

size_t RequestReader::FeedHead(std::string_view bytes) {
  const size_t end = bytes.substr(0, limits_.max_header_bytes).find(kHeadEnd);
  if (end == bytes.npos) {
    if (bytes.size() >= limits_.max_header_bytes) {
      Fail(431, fmt::format("the headers are longer than {} bytes", limits_.max_header_bytes));
    }
    return 0;
  }
  const std::string_view head = bytes.substr(0, end + kHeadEnd.size());
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
  parser.body_limit(std::numeric_limits<uint64_t>::max());  // BeginBody() knows it
  error_code error;
  size_t taken = 0;
  // It stops once between the request line and the headers.
  while (taken < head.size() && !parser.is_header_done() && !error) {
    const size_t now =
        parser.put(boost::asio::buffer(head.data() + taken, head.size() - taken), error);
    taken += now;
    if (now == 0) break;
  }
  if (error || !parser.is_header_done()) {
    Fail(400, fmt::format("no HTTP/1.1 request: {}", error ? error.message() : "it has no end"));
    return head.size();
  }
  const auto& message = parser.get();
  request_.method = ToString(message.method_string());
  const std::string target = ToString(message.target());
  const size_t question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != target.npos) request_.query = target.substr(question + 1);
  for (const auto& field : message) {
    request_.headers.push_back({ToString(field.name_string()), ToString(field.value())});
  }
  is_http_1_0_ = message.version() < 11;
  keeps_alive_ = message.keep_alive();
  failure_ = CheckHead(head);
  if (!failure_) BeginBody();
  return head.size();
}

std::optional<ReadFailure> RequestReader::CheckHead(std::string_view head) const {
  const size_t num_lengths = CountHeaders(request_, "Content-Length");
  const size_t num_encodings = CountHeaders(request_, "Transfer-Encoding");
  if (HasFoldedLine(head)) return ReadFailure{400, "a header goes on in the next line"};
  if (request_.path.empty() || request_.path.front() != '/') {
    return ReadFailure{400, "the target does not begin with '/'"};
  }
  if (CountHeaders(request_, "Host") != 1) return ReadFailure{400, "there must be one Host header"};
  if (num_lengths + num_encodings > 1) {
    return ReadFailure{400, "there must be one Content-Length or Transfer-Encoding at most"};
  }
  if (num_lengths == 1 && !IsDigits(*request_.Header("Content-Length"))) {
    return ReadFailure{400, "Content-Length is no number"};
  }
  if (num_encodings == 1 &&
      (is_http_1_0_ || !EqualsIgnoringCase(*request_.Header("Transfer-Encoding"), "chunked"))) {
    return ReadFailure{400, "Transfer-Encoding must be chunked, in HTTP/1.1"};
  }
  const auto expectation = request_.Header("Expect");
  if (expectation && !EqualsIgnoringCase(*expectation, "100-continue")) {
    return ReadFailure{417, "Expect: 100-continue is all that can be expected"};
  }
  return std::nullopt;
}

void RequestReader::BeginBody() {
  expects_continue_ = request_.Header("Expect").has_value() && !is_http_1_0_;
  auto end = BodyReader::End::kNone;
  uint64_t num_bytes = 0;
  if (request_.Header("Transfer-Encoding")) {
    end = BodyReader::End::kChunks;
  } else if (const auto length = request_.Header("Content-Length")) {
    end = BodyReader::End::kLength;
    const auto [last, error] =
        std::from_chars(length->data(), length->data() + length->size(), num_bytes);
    if (error != std::errc()) num_bytes = std::numeric_limits<uint64_t>::max();
  }
  body_.emplace(limits_, end, num_bytes);
  failure_ = body_->failure();
}

HttpRequest RequestReader::Take() {
  CHECK(is_done());
  return std::move(request_);
}

}  // namespace kvern::server
