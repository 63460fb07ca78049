#include "server/http/http_client.h"

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/thread_name.h"
#include "server/http/ascii.h"

namespace kvern::server {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

using IoError = boost::system::error_code;

constexpr size_t kReplyPieceBytes = size_t{16} << 10;
constexpr std::string_view kHttpScheme = "http://";
constexpr std::string_view kHttpsScheme = "https://";

bool HasControls(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0 ", 4)) != text.npos;
}

// "host:80", or "[::1]:80".
std::string Authority(const HttpUrl& url) {
  const bool is_ipv6 = url.host.find(':') != url.host.npos;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", url.host, is_ipv6 ? "]" : "", url.port);
}

std::string FormatRequest(const HttpUrl& url, const ClientRequest& request) {
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", request.method, url.path,
                                 request.target, Authority(url));
  for (const HttpHeader& header : request.headers) {
    text += header.name + ": " + header.value + "\r\n";
  }
  if (!request.body.empty() || request.method == "POST") {
    text += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  return text + "\r\n" + request.body;
}

}  // namespace

std::string HttpUrl::ToString() const { return fmt::format("http://{}{}", Authority(*this), path); }

Result<HttpUrl> ParseHttpUrl(std::string_view text) {
  const auto fail = [text](std::string_view what) {
    return Errorf(ErrorCode::kInvalidArgument, "'{}': {}: give http://HOST:PORT", text, what);
  };
  if (text.starts_with(kHttpsScheme)) {
    return Errorf(ErrorCode::kUnsupported, "'{}': TLS is not offered: give http://HOST:PORT", text);
  }
  if (!text.starts_with(kHttpScheme)) return fail("does not begin with http://");
  if (HasControls(text) || text.find_first_of("?#@") != text.npos) {
    return fail("has what no such URL has");
  }
  std::string_view rest = text.substr(kHttpScheme.size());
  HttpUrl url;
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    url.path = rest.substr(slash);
    while (url.path.ends_with('/')) url.path.pop_back();
    rest = rest.substr(0, slash);
  }
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == rest.npos) return fail("has no ']'");
    url.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else {
    url.host = rest.substr(0, rest.find(':'));
    port = rest.substr(url.host.size());
  }
  if (url.host.empty()) return fail("has no host");
  if (port.empty()) return url;
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (!IsDigits(port) || error != std::errc() || url.port == 0) return fail("has no such port");
  return url;
}

class ClientExchange;

// What exchanges share. The client's thread, but for what Open() sets and `io`.
struct ClientHome {
  asio::io_context io{1};
  HttpUrl url;
  ClientLimits limits;
  tcp::resolver::results_type endpoints;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
  std::atomic<uint64_t> last_id{0};
  std::vector<tcp::socket> idle;  // connections that carry no request
  std::unordered_map<uint64_t, std::shared_ptr<ClientExchange>> under_way;
};

// One request and its reply, on a connection that it has for itself meanwhile.
class ClientExchange : public std::enable_shared_from_this<ClientExchange> {
 public:
  ClientExchange(ClientHome& home, uint64_t id, const ClientRequest& request,
                 ReplyCallbacks callbacks)
      : home_(home),
        id_(id),
        name_(home.url.ToString() + request.target),
        bytes_(FormatRequest(home.url, request)),
        is_head_(request.method == "HEAD"),
        callbacks_(std::move(callbacks)),
        socket_(home.io),
        timer_(home.io) {}

  void Start() {
    if (home_.idle.empty()) return Connect();
    socket_ = std::move(home_.idle.back());
    home_.idle.pop_back();
    is_reused_ = true;
    Send();
  }

  void Cancel() { Fail("cancelled"); }

 private:
  using Clock = std::chrono::steady_clock;

  void Connect();
  void Send();
  void Read();
  void OnRead(IoError error, size_t num_bytes);
  void UseInput();
  void Finish();
  void Fail(std::string_view what);
  void End(Status status);
  void Arm(int64_t timeout_us);
  void AwaitDeadline();

  ClientHome& home_;
  const uint64_t id_;
  const std::string name_;
  const std::string bytes_;
  const bool is_head_;
  ReplyCallbacks callbacks_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  int64_t timeout_us_ = 0;
  Clock::time_point deadline_;

  bool is_reused_ = false;   // the server may have closed the connection meanwhile
  bool has_input_ = false;   // a byte has come
  bool is_written_ = false;  // all of the request
  bool has_ended_ = false;
  bool has_told_head_ = false;
  std::string input_;
  std::array<char, kReplyPieceBytes> space_;
  std::optional<ReplyReader> reader_;
};

void ClientExchange::Connect() {
  Arm(home_.limits.connect_timeout_us);
  asio::async_connect(
      socket_, home_.endpoints, [self = shared_from_this()](IoError error, const tcp::endpoint&) {
        if (self->has_ended_) return;
        if (error) {
          return self->Fail(
              fmt::format("cannot connect: {}: is the server running?", error.message()));
        }
        self->Send();
      });
}

void ClientExchange::Send() {
  IoError ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  reader_.emplace(home_.limits.read, !is_head_);
  is_written_ = false;
  Arm(home_.limits.read_timeout_us);
  // What goes wrong with it the reader sees: a server may reply before it has read all.
  asio::async_write(
      socket_, asio::buffer(bytes_),
      [self = shared_from_this()](IoError error, size_t) { self->is_written_ = !error; });
  Read();
}

void ClientExchange::Read() {
  socket_.async_read_some(asio::buffer(space_),
                          [self = shared_from_this()](IoError error, size_t num_bytes) {
                            self->OnRead(error, num_bytes);
                          });
}

void ClientExchange::OnRead(IoError error, size_t num_bytes) {
  if (has_ended_) return;
  if (error && is_reused_ && !has_input_) {
    is_reused_ = false;
    IoError ignored;
    socket_.close(ignored);
    return Connect();
  }
  try {
    if (error == asio::error::eof) {
      reader_->FeedClose();
      return UseInput();
    }
    if (error) return Fail(error.message());
    has_input_ = true;
    input_.append(space_.data(), num_bytes);
    Arm(home_.limits.read_timeout_us);
    UseInput();
  } catch (const std::exception& exception) {
    Fail(exception.what());
  }
}

void ClientExchange::UseInput() {
  input_.erase(0, reader_->Feed(input_));
  if (!has_told_head_ && reader_->has_head()) {
    has_told_head_ = true;
    if (callbacks_.on_head) callbacks_.on_head(reader_->head());
  }
  const std::string body = reader_->TakeBody();
  if (!body.empty() && callbacks_.on_body) callbacks_.on_body(body);
  if (reader_->failure()) return Fail(reader_->failure()->message);
  if (reader_->is_done()) return Finish();
  Read();
}

void ClientExchange::Finish() {
  if (reader_->keeps_alive() && input_.empty() && is_written_) {
    home_.idle.push_back(std::move(socket_));
  }
  End({});
}

void ClientExchange::Fail(std::string_view what) {
  End(Errorf(ErrorCode::kIo, "{}: {}", name_, what));
}

void ClientExchange::End(Status status) {
  if (std::exchange(has_ended_, true)) return;
  timer_.cancel();
  IoError ignored;
  socket_.close(ignored);
  const auto self = shared_from_this();  // the map's may be the last
  home_.under_way.erase(id_);
  const ReplyCallbacks callbacks = std::exchange(callbacks_, {});
  if (callbacks.on_end) callbacks.on_end(std::move(status));
}

// Sets the deadline. The timer looks at it when it goes off, and is not set anew for each piece.
void ClientExchange::Arm(int64_t timeout_us) {
  deadline_ = Clock::now() + std::chrono::microseconds(timeout_us);
  if (std::exchange(timeout_us_, timeout_us) == timeout_us) return;
  AwaitDeadline();
}

void ClientExchange::AwaitDeadline() {
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](IoError error) {
    if (error || self->has_ended_) return;
    if (self->deadline_ > Clock::now()) return self->AwaitDeadline();
    self->Fail(
        fmt::format("nothing came for {} s", static_cast<double>(self->timeout_us_) / 1'000'000));
  });
}

HttpClient::HttpClient(std::unique_ptr<ClientHome> home) : home_(std::move(home)) {}

HttpClient::~HttpClient() {
  asio::post(home_->io, [home = home_.get()] {
    for (const auto& [id, exchange] : std::exchange(home->under_way, {})) exchange->Cancel();
    home->idle.clear();
    home->work.reset();
  });
  home_->thread.join();
}

Result<std::unique_ptr<HttpClient>> HttpClient::Open(const HttpUrl& url,
                                                     const ClientLimits& limits) {
  auto home = std::make_unique<ClientHome>();
  home->url = url;
  home->limits = limits;
  IoError error;
  tcp::resolver resolver(home->io);
  home->endpoints = resolver.resolve(url.host, std::to_string(url.port), error);
  if (error) {
    return Errorf(ErrorCode::kIo, "{}: no address of {} is known: {}", url.ToString(), url.host,
                  error.message());
  }
  home->work.emplace(home->io.get_executor());
  home->thread = std::thread([home = home.get()] {
    NameThisThread("kvern-client");
    home->io.run();
  });
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(home)));
}

uint64_t HttpClient::Start(const ClientRequest& request, ReplyCallbacks callbacks) {
  const uint64_t id = ++home_->last_id;
  const auto exchange = std::make_shared<ClientExchange>(*home_, id, request, std::move(callbacks));
  asio::post(home_->io, [home = home_.get(), id, exchange] {
    home->under_way.emplace(id, exchange);
    exchange->Start();
  });
  return id;
}

void HttpClient::Cancel(uint64_t id) {
  asio::post(home_->io, [home = home_.get(), id] {
    const auto found = home->under_way.find(id);
    if (found == home->under_way.end()) return;
    const std::shared_ptr<ClientExchange> exchange = found->second;
    exchange->Cancel();
  });
}

Result<WholeReply> HttpClient::Ask(const ClientRequest& request) {
  struct State {
    WholeReply reply;
    std::promise<Status> ended;
  };
  const auto state = std::make_shared<State>();
  auto ended = state->ended.get_future();
  Start(request, {.on_head = [state](const ReplyHead& head) { state->reply.status = head.status; },
                  .on_body = [state](std::string_view bytes) { state->reply.body += bytes; },
                  .on_end = [state](Status status) { state->ended.set_value(std::move(status)); }});
  KVERN_RETURN_IF_ERROR(ended.get());
  return std::move(state->reply);
}

const HttpUrl& HttpClient::url() const { return home_->url; }

}  // namespace kvern::server
