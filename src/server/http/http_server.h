// HttpServer: HTTP/1.1 over TCP, TLS and unix sockets, on one thread of its own that only moves
// bytes.
//
// It answers by itself what is no request that may be served, and gives the rest to the handler.
// Limits bound what a client can hold or make wait; a connection that breaks one is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http/message.h"

namespace kvern::server {

struct HttpLimits {
  size_t header_bytes = size_t{32} << 10;  // also of a chunk's header, and of pipelined requests
  size_t body_bytes = size_t{64} << 20;
  size_t all_bodies_bytes = size_t{256} << 20;  // of all connections at once
  size_t connections = 8192;
  size_t queued_bytes = size_t{1} << 20;  // that a client is behind
  int64_t header_timeout_us = 10'000'000;
  int64_t body_timeout_us = 30'000'000;   // without progress
  int64_t idle_timeout_us = 75'000'000;   // between requests
  int64_t write_timeout_us = 30'000'000;  // without progress
};

// PEM files.
struct TlsFiles {
  std::string certificate;
  std::string key;
};

struct HttpAddress {
  // An IP address, a name, or the path of a unix socket, which begins with '/'. Several addresses
  // are separated by commas.
  std::string host;
  uint16_t port = 0;  // 0: one that is free on the first address
  std::optional<TlsFiles> tls = {};
};

// At least one.
std::vector<std::string> HostsOf(const HttpAddress& address);

struct HttpCallbacks {
  // Before the body is read: a reply instead of serving it, or none. Both on the server's thread:
  // neither may wait.
  std::function<std::optional<HttpReply>(const HttpRequest& head)> check_head;
  std::function<void(HttpRequest, std::shared_ptr<HttpSink>)> handle;
  // The body of a reply that the server gives by itself: for a status and what is wrong.
  std::function<HttpReply(int status, const std::string& message)> make_error;
};

struct HttpCounters {
  size_t connections = 0;
  uint64_t accepted = 0;
  uint64_t rejected = 0;  // requests that it answered by itself
};

class HttpServer {
 public:
  // Listens. Errors: kInvalidArgument for the address or a file, kIo where the port is taken.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpAddress& address,
                                                    const HttpLimits& limits,
                                                    HttpCallbacks callbacks);
  ~HttpServer();  // Stop()

  uint16_t port() const;    // 0: of a unix socket
  std::string url() const;  // "http://127.0.0.1:8080", "unix:/run/kvern.sock"
  HttpCounters counters() const;

  // New connections see these. Errors: as Listen(); the old ones stay in use then.
  Status ReloadTls();

  // Accepts no more connections and requests; those that are served go on.
  void Drain();
  // Closes all. Nothing is called any more when it returns. Not beside another call; any may
  // follow.
  void Stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::server
