// RequestReader: one HTTP/1.x request out of bytes that anybody may have sent.
//
// Stricter than RFC 9112 asks, so that no proxy in front can read the bytes otherwise: exactly one
// Host; either one Content-Length of digits or the one Transfer-Encoding "chunked", and that only
// in HTTP/1.1; no folded headers; lines end with CRLF. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
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
  explicit RequestReader(const ReadLimits& limits) : limits_(limits) {}

  // Takes what it can use of `bytes` and returns how many. What it leaves must come again with more
  // behind it; never more than max_header_bytes are left. Takes nothing once it is done or failed.
  size_t Feed(std::string_view bytes);

  bool has_head() const { return stage_ != Stage::kHead; }  // method, target, headers
  bool is_done() const { return stage_ == Stage::kDone; }
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
  enum class Stage { kHead, kData, kChunkSize, kChunkData, kChunkEnd, kTrailers, kDone };

  void Fail(int status, std::string message);
  // Each takes what it can of its stage and returns how many bytes; none: more are needed.
  size_t FeedHead(std::string_view bytes);
  size_t FeedData(std::string_view bytes);
  size_t FeedChunkSize(std::string_view bytes);
  size_t FeedTrailers(std::string_view bytes);
  size_t FeedStage(std::string_view bytes);
  // Up to the end of the line; none: it has not come yet, or is too long.
  std::optional<std::string_view> TakeLine(std::string_view bytes);
  std::optional<ReadFailure> CheckHead(std::string_view head) const;
  void BeginBody();
  void ExpectData(uint64_t num_bytes, Stage stage);

  const ReadLimits limits_;
  Stage stage_ = Stage::kHead;
  HttpRequest request_;
  bool expects_continue_ = false;
  bool keeps_alive_ = false;
  bool is_http_1_0_ = false;
  uint64_t num_expected_ = 0;  // bytes of the body or the chunk that have not come
  size_t trailer_bytes_ = 0;
  std::optional<ReadFailure> failure_;
};

}  // namespace kvern::server
