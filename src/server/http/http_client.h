// HttpClient: requests to one server, over as many connections as are under way at once.
//
// Connections are kept for later requests. Replies come in pieces, on one thread of the client's
// own, so that thousands of streams need no more. Any thread may use it. Errors are one line that
// names the URL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/message.h"
#include "server/http/reply_reader.h"

namespace kvern::server {

// "http://HOST[:PORT][/PATH]"; PATH goes in front of every target.
struct HttpUrl {
  std::string host = {};  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string path = {};  // begins with '/', or is empty; never ends with it

  std::string ToString() const;
};
// Errors: kInvalidArgument; kUnsupported for https.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

struct ClientLimits {
  ReadLimits read = {};  // of a reply
  int64_t connect_timeout_us = 10'000'000;
  int64_t read_timeout_us = 1'800'000'000;  // without a byte
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = {};  // begins with '/'
  std::vector<HttpHeader> headers = {};
  std::string body = {};
};

// Called on the client's thread, which they must not hold up: they may not wait for the client.
struct ReplyCallbacks {
  std::function<void(const ReplyHead& head)> on_head = {};
  std::function<void(std::string_view bytes)> on_body = {};  // as they come
  // Once, after all others. Errors: there is no whole reply, or it was cancelled.
  std::function<void(Status status)> on_end = {};
};

struct WholeReply {
  int status = 0;
  std::string body = {};
};

struct ClientHome;

class HttpClient {
 public:
  // Errors: kIo where the host has no address.
  static Result<std::unique_ptr<HttpClient>> Open(const HttpUrl& url, const ClientLimits& limits);
  ~HttpClient();  // cancels what is under way
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Returns what Cancel() is told.
  uint64_t Start(const ClientRequest& request, ReplyCallbacks callbacks);
  void Cancel(uint64_t id);  // closes its connection; nothing if it has ended

  // Waits for the reply. Not from callbacks. Errors: as on_end().
  Result<WholeReply> Ask(const ClientRequest& request);

  const HttpUrl& url() const;

 private:
  explicit HttpClient(std::unique_ptr<ClientHome> home);
  const std::unique_ptr<ClientHome> home_;
};

}  // namespace kvern::server
