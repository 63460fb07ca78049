// ReplyReader: one HTTP/1.x reply out of bytes that anybody may have sent, its body as it comes.
//
// One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/body_reader.h"
#include "server/http/message.h"

namespace kvern::server {

struct ReplyHead {
  int status = 0;
  std::vector<HttpHeader> headers = {};

  // The first header of that name, in any case. Lives as long as the head.
  std::optional<std::string_view> Header(std::string_view name) const;
};

class ReplyReader {
 public:
  // `has_body`: false for a reply to HEAD.
  explicit ReplyReader(const ReadLimits& limits, bool has_body = true)
      : limits_(limits), has_body_(has_body) {}

  // Takes what it can use of `bytes` and returns how many. What it leaves must come again with more
  // behind it; never more than max_header_bytes are left. Takes nothing once it is done or failed.
  size_t Feed(std::string_view bytes);
  // The connection was closed. That ends a body without a length; else it is a failure.
  void FeedClose();

  bool has_head() const { return body_.has_value(); }
  bool is_done() const { return is_closed_ || (body_ && body_->is_done()); }
  const std::optional<ReadFailure>& failure() const { return failure_; }

  // REQUIRES: has_head().
  const ReplyHead& head() const { return head_; }
  // Of the body, what has come since the last call.
  std::string TakeBody();
  // The connection can carry another request once the reply is done.
  bool keeps_alive() const { return keeps_alive_; }

 private:
  size_t FeedHead(std::string_view bytes);
  void BeginBody();
  void Fail(std::string message);

  const ReadLimits limits_;
  const bool has_body_;
  ReplyHead head_;
  std::optional<BodyReader> body_;  // once the head is there
  std::string pending_;             // of the body
  bool keeps_alive_ = false;
  bool is_closed_ = false;  // … and that was the end of the body
  std::optional<ReadFailure> failure_;
};

}  // namespace kvern::server
