// HTTP requests and replies as plain data, and where a reply goes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvern::server {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method = {};  // "GET"
  std::string path = {};    // of the target, as it came: begins with '/'
  std::string query = {};   // what followed '?'
  std::vector<HttpHeader> headers = {};
  std::string body = {};

  // The first header of that name, in any case. Lives as long as the request.
  std::optional<std::string_view> Header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";  // empty: none
  std::vector<HttpHeader> headers = {};           // besides those that the connection writes
  std::string body = {};
};

// Where the reply to one request goes: either Send(), or Begin(), Write()…, End().
//
// Any thread. Once the connection is closed all of it does nothing. One that is destroyed before
// its reply has ended closes the connection: the client must not take a part for the whole.
class HttpSink {
 public:
  virtual ~HttpSink() = default;

  virtual void Send(HttpReply reply) = 0;

  // A reply that comes in pieces; `head` has no body.
  virtual void Begin(HttpReply head) = 0;
  virtual void Write(std::string bytes) = 0;
  virtual void End() = 0;

  // `closed` is called once, on the connection's thread or this one, if the client goes or reads
  // too slowly before the reply has ended. At once if it has gone already.
  virtual void OnClosed(std::function<void()> closed) = 0;
};

}  // namespace kvern::server
