// RequestReader: one HTTP/1.x request out of bytes that anybody may have sent.
//
// Stricter than RFC 9112 asks, so that no proxy in front can read the bytes otherwise: exactly one
// Host; either one Content-Length of digits or the one Transfer-Encoding "chunked", and that only
// in HTTP/1.1; no folded headers; lines end with CRLF. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace kvern::server {

struct ReadLimits {
  size_t max_header_bytes = size_t{32} << 10;  // also of a chunk's header, and of all trailers
  size_t max_body_bytes = size_t{64} << 20;
};

// Why bytes are no request that is served. The connection must be closed after it is said.
struct ReadFailure {
  int status;
  std::string message;
};

class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes what it can use of `bytes` and returns how many. What it leaves must come again with more
  // behind it; never more than max_header_bytes are left. Takes nothing once it is done or failed.
  size_t Feed(std::string_view bytes);

  bool has_head() const;  // method, target and headers are there
  bool is_done() const;
  const std::optional<ReadFailure>& failure() const { return failure_; }

  // REQUIRES: has_head().
  const HttpRequest& request() const { return request_; }  // its body once is_done()
  bool expects_continue() const { return expects_continue_; }
  bool keeps_alive() const;
  bool is_http_1_0() const;

  size_t body_bytes() const;  // so far

  // REQUIRES: is_done().
  HttpRequest Take();

 private:
  struct Impl;

  void Fail(int status, std::string message);
  size_t FeedHead(std::string_view bytes);
  size_t FeedBody(std::string_view bytes);
  bool CheckHead(std::string_view head);

  const ReadLimits limits_;
  std::unique_ptr<Impl> impl_;
  HttpRequest request_;
  bool expects_continue_ = false;
  std::optional<ReadFailure> failure_;
};

}  // namespace kvern::server
