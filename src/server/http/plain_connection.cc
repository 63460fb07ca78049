// Connections over TCP and unix sockets.
#include "server/http/connection-inl.h"

namespace kvern::server {

template <>
void Connection<StreamSocket>::Handshake(const std::function<void()>& then) {
  then();
}

template <>
void Connection<StreamSocket>::EndOutput() {
  ErrorCodeOfIo ignored;
  stream_.shutdown(asio::socket_base::shutdown_send, ignored);
}

std::shared_ptr<AnyConnection> MakePlainConnection(const std::shared_ptr<ConnectionHome>& home,
                                                   StreamSocket socket) {
  return std::make_shared<Connection<StreamSocket>>(home, std::move(socket));
}

}  // namespace kvern::server
