// RequestReader: one HTTP/1.x request out of bytes that anybody may have sent.
//
// Stricter than RFC 9112 asks, so that no proxy in front can read the bytes otherwise: exactly one
// Host; either one Content-Length of digits or the one Transfer-Encoding "chunked", and that only
// in HTTP/1.1; no folded headers; lines end with CRLF. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/body_reader.h"
#include "server/http/message.h"

namespace kvern::server {

class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits) : limits_(limits) {}

  // Takes what it can use of `bytes` and returns how many. What it leaves must come again with more
  // behind it; never more than max_header_bytes are left. Takes nothing once it is done or failed.
  size_t Feed(std::string_view bytes);

  bool has_head() const { return body_.has_value(); }  // method, target, headers
  bool is_done() const { return body_ && body_->is_done(); }
  const std::optional<ReadFailure>& failure() const { return failure_; }

  // REQUIRES: has_head().
  const HttpRequest& request() const { return request_; }
  bool expects_continue() const { return expects_continue_; }
  bool keeps_alive() const { return keeps_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }

  size_t body_bytes() const { return request_.body.size(); }  // so far

  // REQUIRES: is_done().
  HttpRequest Take();

 private:
  void Fail(int status, std::string message);
  // Takes the head, if all of it is there, and returns its length.
  size_t FeedHead(std::string_view bytes);
  std::optional<ReadFailure> CheckHead(std::string_view head) const;
  void BeginBody();

  const ReadLimits limits_;
  HttpRequest request_;
  std::optional<BodyReader> body_;  // once the head is there
  bool expects_continue_ = false;
  bool keeps_alive_ = false;
  bool is_http_1_0_ = false;
  std::optional<ReadFailure> failure_;
};

}  // namespace kvern::server
