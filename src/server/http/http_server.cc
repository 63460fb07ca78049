#include "server/http/http_server.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_name.h"
#include "server/http/ascii.h"
#include "server/http/connection_home-inl.h"

namespace kvern::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using Local = asio::local::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using StreamEndpoint = asio::generic::stream_protocol::endpoint;
using ErrorCodeOfIo = boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kAcceptPause(100);

Result<std::shared_ptr<asio::ssl::context>> LoadTls(const TlsFiles& files) {
  const auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  ErrorCodeOfIo error;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                           asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1,
                       error);
  if (!error) context->use_certificate_chain_file(files.certificate, error);
  if (error) {
    return Errorf(ErrorCode::kInvalidArgument, "{}: no certificate chain in PEM: {}",
                  files.certificate, error.message());
  }
  context->use_private_key_file(files.key, asio::ssl::context::pem, error);
  if (error) {
    return Errorf(ErrorCode::kInvalidArgument, "{}: no private key in PEM that fits {}: {}",
                  files.key, files.certificate, error.message());
  }
  return context;
}

}  // namespace

std::vector<std::string> HostsOf(const HttpAddress& address) {
  if (address.host.starts_with('/')) return {address.host};
  std::vector<std::string> hosts;
  std::string_view rest = address.host;
  while (true) {
    const size_t end = std::min(rest.find(','), rest.size());
    hosts.emplace_back(TrimAscii(rest.substr(0, end)));
    if (end == rest.size()) return hosts;
    rest.remove_prefix(end + 1);
  }
}

struct HttpServer::Impl {
  std::shared_ptr<ConnectionHome> home = std::make_shared<ConnectionHome>();
  HttpAddress address;
  std::shared_ptr<asio::ssl::context> tls;  // null: plain
  // One for each address. A pause is waited in where no descriptor is free.
  struct Listener {
    explicit Listener(asio::io_context& io) : acceptor(io), pause(io) {}
    Acceptor acceptor;
    asio::steady_timer pause;
  };
  std::vector<std::unique_ptr<Listener>> listeners;
  uint16_t port = 0;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;

  Status Open();
  Status OpenTcp(const std::string& host);
  Status OpenLocal();
  Status ListenOn(const StreamEndpoint& endpoint, const std::string& host);
  void Accept(Listener& listener);
  void OnAccept(Listener& listener, ErrorCodeOfIo error, StreamSocket socket);
  void Stop();
  void CloseAcceptors();
  template <typename Function>
  auto Ask(Function function) const;
};

Status HttpServer::Impl::Open() {
  if (address.tls) {
    KVERN_ASSIGN_OR_RETURN(tls, LoadTls(*address.tls));
  }
  if (address.host.starts_with('/')) return OpenLocal();
  for (const std::string& host : HostsOf(address)) KVERN_RETURN_IF_ERROR(OpenTcp(host));
  return {};
}

Status HttpServer::Impl::OpenTcp(const std::string& host) {
  ErrorCodeOfIo error;
  tcp::resolver resolver(home->io);
  const auto found = resolver.resolve(host, std::to_string(port != 0 ? port : address.port),
                                      tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "--host: {} is no address of this machine: {}", host,
                  error.message());
  }
  KVERN_RETURN_IF_ERROR(ListenOn(found.begin()->endpoint(), host));
  const StreamEndpoint endpoint = listeners.back()->acceptor.local_endpoint(error);
  // The port is at the same place in both.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  port = ntohs(reinterpret_cast<const sockaddr_in*>(endpoint.data())->sin_port);
  return {};
}

Status HttpServer::Impl::OpenLocal() {
  ErrorCodeOfIo error;
  // A socket that nobody listens on any more is in the way.
  Local::socket probe(home->io);
  probe.connect(Local::endpoint(address.host), error);
  if (!error) {
    return Errorf(ErrorCode::kIo,
                  "{}: another server listens there: stop it, or give another --unix-socket",
                  address.host);
  }
  if (error == asio::error::connection_refused) ::unlink(address.host.c_str());
  return ListenOn(Local::endpoint(address.host), address.host);
}

Status HttpServer::Impl::ListenOn(const StreamEndpoint& endpoint, const std::string& host) {
  Acceptor& acceptor = listeners.emplace_back(std::make_unique<Listener>(home->io))->acceptor;
  ErrorCodeOfIo error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  if (host.starts_with('/')) {
    return Errorf(ErrorCode::kIo, "{}: cannot listen there: {}", host, error.message());
  }
  return Errorf(ErrorCode::kIo, "{}: cannot listen on port {}: {}: give another --host or --port",
                host, address.port, error.message());
}

void HttpServer::Impl::Accept(Listener& listener) {
  listener.acceptor.async_accept(home->io,
                                 [this, &listener](ErrorCodeOfIo error, StreamSocket socket) {
                                   OnAccept(listener, error, std::move(socket));
                                 });
}

void HttpServer::Impl::OnAccept(Listener& listener, ErrorCodeOfIo error, StreamSocket socket) {
  if (error == asio::error::operation_aborted) return;
  if (error) {
    // No descriptor is free: one may be soon.
    listener.pause.expires_after(kAcceptPause);
    listener.pause.async_wait([this, &listener](ErrorCodeOfIo cancelled) {
      if (!cancelled) Accept(listener);
    });
    return;
  }
  if (home->counters.connections < home->limits.connections) {
    if (port != 0) socket.set_option(tcp::no_delay(true), error);
    const auto connection = tls ? MakeTlsConnection(home, std::move(socket), tls)
                                : MakePlainConnection(home, std::move(socket));
    std::erase_if(home->open, [](const auto& weak) { return weak.expired(); });
    home->open.push_back(connection);
    connection->Start();
  }
  Accept(listener);
}

void HttpServer::Impl::CloseAcceptors() {
  for (const auto& listener : listeners) {
    listener->pause.cancel();
    ErrorCodeOfIo ignored;
    listener->acceptor.close(ignored);
  }
}

// What the server's thread says. After Stop() there is none, and the caller is alone.
template <typename Function>
auto HttpServer::Impl::Ask(Function function) const {
  if (!thread.joinable()) return function();
  std::packaged_task<decltype(function())()> task(std::move(function));
  auto answer = task.get_future();
  asio::post(home->io, [&task] { task(); });
  return answer.get();
}

void HttpServer::Impl::Stop() {
  if (!thread.joinable()) return;
  asio::post(home->io, [this] {
    CloseAcceptors();
    for (const auto& weak : std::exchange(home->open, {})) {
      if (const auto connection = weak.lock()) connection->Close();
    }
    work.reset();
  });
  thread.join();
  if (address.host.starts_with('/')) ::unlink(address.host.c_str());
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  Stop();
  // What sinks said since: it holds their connections.
  impl_->home->io.restart();
  impl_->home->io.poll();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpAddress& address,
                                                       const HttpLimits& limits,
                                                       HttpCallbacks callbacks) {
  auto impl = std::make_unique<Impl>();
  impl->address = address;
  impl->home->limits = limits;
  impl->home->callbacks = std::move(callbacks);
  KVERN_RETURN_IF_ERROR(impl->Open());
  impl->work.emplace(impl->home->io.get_executor());
  for (const auto& listener : impl->listeners) impl->Accept(*listener);
  impl->thread = std::thread([home = impl->home] {
    NameThisThread("kvern-http");
    home->io.run();
  });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port; }

std::string HttpServer::url() const {
  const std::string host = HostsOf(impl_->address).front();
  if (host.starts_with('/')) return "unix:" + host;
  return fmt::format("{}://{}:{}", impl_->tls ? "https" : "http",
                     host.find(':') == host.npos ? host : "[" + host + "]", impl_->port);
}

HttpCounters HttpServer::counters() const {
  return impl_->Ask([this] { return impl_->home->counters; });
}

Status HttpServer::ReloadTls() {
  if (!impl_->address.tls) return {};
  KVERN_ASSIGN_OR_RETURN(auto context, LoadTls(*impl_->address.tls));
  impl_->Ask([&] { impl_->tls = std::move(context); });
  return {};
}

void HttpServer::Drain() {
  impl_->Ask([this] {
    impl_->home->is_draining = true;
    impl_->CloseAcceptors();
    for (const auto& weak : impl_->home->open) {
      if (const auto connection = weak.lock()) connection->Drain();
    }
  });
}

void HttpServer::Stop() { impl_->Stop(); }

}  // namespace kvern::server
