#include "server/http/request_reader.h"

#include <fmt/core.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
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

struct RequestReader::Impl {
  http::request_parser<http::string_body> parser;
};

RequestReader::RequestReader(const ReadLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>()) {
  impl_->parser.header_limit(static_cast<uint32_t>(limits.max_header_bytes));
  impl_->parser.body_limit(limits.max_body_bytes);
}

RequestReader::~RequestReader() = default;

bool RequestReader::has_head() const { return impl_->parser.is_header_done() && !failure_; }
bool RequestReader::is_done() const { return impl_->parser.is_done() && !failure_; }
bool RequestReader::keeps_alive() const { return impl_->parser.get().keep_alive(); }
bool RequestReader::is_http_1_0() const { return impl_->parser.get().version() < 11; }
size_t RequestReader::body_bytes() const { return impl_->parser.get().body().size(); }

void RequestReader::Fail(int status, std::string message) {
  failure_ = ReadFailure{status, std::move(message)};
}

size_t RequestReader::Feed(std::string_view bytes) {
  if (failure_ || is_done()) return 0;
  size_t taken = 0;
  if (!has_head()) {
    // An empty line may precede a request.
    while (bytes.substr(taken).starts_with(kLineEnd)) taken += kLineEnd.size();
    taken += FeedHead(bytes.substr(taken));
    if (!has_head()) return taken;
  }
  taken += FeedBody(bytes.substr(taken));
  if (is_done()) request_.body = std::move(impl_->parser.get().body());
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
  error_code error;
  size_t taken = 0;
  // The parser stops once between the request line and the headers.
  while (taken < head.size() && !impl_->parser.is_header_done()) {
    const size_t now =
        impl_->parser.put(boost::asio::buffer(head.data() + taken, head.size() - taken), error);
    taken += now;
    if (error || now == 0) break;
  }
  if (error == http::error::body_limit) {
    Fail(413, fmt::format("the body is longer than {} bytes", limits_.max_body_bytes));
  } else if (error || !impl_->parser.is_header_done()) {
    Fail(400, fmt::format("no HTTP/1.1 request: {}", error ? error.message() : "it has no end"));
  } else if (CheckHead(head)) {
    return taken;
  }
  return taken;
}

bool RequestReader::CheckHead(std::string_view head) {
  const auto& message = impl_->parser.get();
  request_.method = ToString(message.method_string());
  const std::string target = ToString(message.target());
  const size_t question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != target.npos) request_.query = target.substr(question + 1);
  for (const auto& field : message) {
    request_.headers.push_back({ToString(field.name_string()), ToString(field.value())});
  }
  const size_t num_lengths = CountHeaders(request_, "Content-Length");
  const size_t num_encodings = CountHeaders(request_, "Transfer-Encoding");
  if (HasFoldedLine(head)) {
    Fail(400, "a header goes on in the next line");
  } else if (request_.path.empty() || request_.path.front() != '/') {
    Fail(400, "the target does not begin with '/'");
  } else if (CountHeaders(request_, "Host") != 1) {
    Fail(400, "there must be one Host header");
  } else if (num_lengths > 1 || num_encodings > 1 || num_lengths + num_encodings > 1) {
    Fail(400, "there must be one Content-Length or Transfer-Encoding at most");
  } else if (num_lengths == 1 && !IsDigits(*request_.Header("Content-Length"))) {
    Fail(400, "Content-Length is no number");
  } else if (num_encodings == 1 &&
             (is_http_1_0() ||
              !EqualsIgnoringCase(*request_.Header("Transfer-Encoding"), "chunked"))) {
    Fail(400, "Transfer-Encoding must be chunked, in HTTP/1.1");
  }
  if (failure_) return false;
  const auto expectation = request_.Header("Expect");
  if (expectation && !EqualsIgnoringCase(*expectation, "100-continue")) {
    Fail(417, "Expect: 100-continue is all that can be expected");
    return false;
  }
  expects_continue_ = expectation.has_value() && !is_http_1_0();
  return true;
}

size_t RequestReader::FeedBody(std::string_view bytes) {
  impl_->parser.eager(true);
  size_t taken = 0;
  while (!impl_->parser.is_done()) {
    error_code error;
    const size_t now =
        impl_->parser.put(boost::asio::buffer(bytes.data() + taken, bytes.size() - taken), error);
    taken += now;
    if (error == http::error::need_more) break;
    if (error == http::error::body_limit) {
      Fail(413, fmt::format("the body is longer than {} bytes", limits_.max_body_bytes));
      break;
    }
    if (error) {
      Fail(400, fmt::format("the body is no HTTP: {}", error.message()));
      break;
    }
    if (now == 0) break;
  }
  // Of a body's data nothing is left; a chunk's header or trailers may not fill the buffer.
  if (!failure_ && !impl_->parser.is_done() && bytes.size() - taken >= limits_.max_header_bytes) {
    Fail(431, "a chunk's header or the trailers are too long");
  }
  return taken;
}

HttpRequest RequestReader::Take() {
  CHECK(is_done());
  return std::move(request_);
}

}  // namespace kvern::server
