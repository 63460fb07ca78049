// What connections share with their server. The server's thread.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <list>
#include <memory>

#include "server/http/http_server.h"

namespace kvern::server {

using StreamSocket = boost::asio::generic::stream_protocol::socket;

class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  virtual void Start() = 0;
  // No more requests: closes now if none is served.
  virtual void Drain() = 0;
  virtual void Close() = 0;
};

struct ConnectionHome {
  boost::asio::io_context io{1};
  HttpLimits limits;
  HttpCallbacks callbacks;
  bool is_draining = false;
  size_t bodies_bytes = 0;  // in memory, of all connections
  HttpCounters counters;
  std::list<std::weak_ptr<AnyConnection>> open;
};

std::shared_ptr<AnyConnection> MakePlainConnection(const std::shared_ptr<ConnectionHome>& home,
                                                   StreamSocket socket);
std::shared_ptr<AnyConnection> MakeTlsConnection(
    const std::shared_ptr<ConnectionHome>& home, StreamSocket socket,
    const std::shared_ptr<boost::asio::ssl::context>& context);

}  // namespace kvern::server
