// Connections over TLS.
#include <boost/asio/ssl/stream.hpp>

#include "server/http/connection-inl.h"

namespace kvern::server {
namespace {

// Keeps the context whose certificate it uses: a reload makes another one.
struct TlsStream : asio::ssl::stream<StreamSocket> {
  TlsStream(StreamSocket socket, std::shared_ptr<asio::ssl::context> context)
      : stream(std::move(socket), *context), context(std::move(context)) {}
  std::shared_ptr<asio::ssl::context> context;
};

}  // namespace

template <>
void Connection<TlsStream>::Handshake(const std::function<void()>& then) {
  stream_.async_handshake(TlsStream::server,
                          [self = shared_from_this(), then](ErrorCodeOfIo error) {
                            if (error) return self->Close();
                            then();
                          });
}

// Telling the end would need the read that is under way. The client knows it: every reply but those
// in HTTP/1.0 says its length or ends with an empty chunk.
template <>
void Connection<TlsStream>::EndOutput() {}

std::shared_ptr<AnyConnection> MakeTlsConnection(
    const std::shared_ptr<ConnectionHome>& home, StreamSocket socket,
    const std::shared_ptr<asio::ssl::context>& context) {
  return std::make_shared<Connection<TlsStream>>(home, TlsStream(std::move(socket), context));
}

}  // namespace kvern::server
