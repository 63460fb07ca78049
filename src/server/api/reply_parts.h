// ReplyParts: whole replies to several requests, which one client gets as one JSON array.
//
// Any thread. It lives as long as its sinks; where one is destroyed without a reply, the connection
// closes as with any sink.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/api/call.h"
#include "server/http/message.h"

namespace kvern::server {

class ReplyParts : public std::enable_shared_from_this<ReplyParts> {
 public:
  // For the reply of `call` to be an array of so many.
  static std::shared_ptr<ReplyParts> Make(const Call& call, size_t count);

  // Where the reply of one goes. An error becomes that of all, and the others are cancelled.
  // REQUIRES: each once.
  std::shared_ptr<HttpSink> SinkOf(size_t part);

 private:
  class PartSink;

  ReplyParts(const Call& call, size_t count);
  void Set(size_t part, HttpReply reply);
  void OnClosed(std::function<void()> closed);
  void Close();

  const Call call_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  size_t num_left_;
  std::optional<HttpReply> failure_ = {};  // the first
  bool is_closed_ = false;
  std::vector<std::function<void()>> closed_ = {};
};

}  // namespace kvern::server
