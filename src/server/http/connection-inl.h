// Connection<Stream>: reads requests one after the other and writes their replies. Compiled once
// for each kind of stream.
//
// Invariants, on the server's thread:
// 1. At most one read and one write are under way. A read is: between requests, while a head or a
//    body comes, and while a request is served, to see the client go.
// 2. What came after the request that is served waits in `input_`, max_header_bytes at most.
// 3. `turn_` counts requests. A sink speaks for its own turn alone.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "server/http/connection_home-inl.h"
#include "server/http/reply_format.h"
#include "server/http/request_reader.h"

namespace kvern::server {

namespace asio = boost::asio;
using ErrorCodeOfIo = boost::system::error_code;

template <typename Stream>
class Connection final : public AnyConnection,
                         public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(std::shared_ptr<ConnectionHome> home, Stream stream)
      : home_(std::move(home)),
        stream_(std::move(stream)),
        read_timer_(home_->io),
        write_timer_(home_->io) {
    ++home_->counters.connections;
    ++home_->counters.accepted;
  }

  ~Connection() override {
    CountBody(0);
    --home_->counters.connections;
  }

  void Start() override;
  void Drain() override {
    if (phase_ == Phase::kIdle) Close();
  }
  void Close() override;

 private:
  enum class Phase {
    kIdle,     // no byte of the next request yet
    kHead,     // some, not all of its head
    kBody,     // …
    kServing,  // the handler has it
    kLast,     // what is queued is the end: reads no more requests
    kClosed,
  };

  class Sink;

  void BeginRequest();
  void Read();
  void OnRead(ErrorCodeOfIo error, size_t num_bytes);
  void UseInput();
  void OnHead();
  void Serve();
  void Reject(int status, const std::string& message);
  void ReplyAndClose(const HttpReply& reply);
  void EndTurn();

  void Queue(std::string bytes);
  void WriteNext();
  void OnWritten(ErrorCodeOfIo error);
  void Linger();

  void Arm(asio::steady_timer& timer, int64_t timeout_us);
  void CountBody(size_t num_bytes);
  void TellClosed();

  // Of a sink.
  void SinkSend(uint64_t turn, const HttpReply& reply);
  void SinkBegin(uint64_t turn, const HttpReply& head);
  void SinkWrite(uint64_t turn, std::string bytes);
  void SinkEnd(uint64_t turn);
  void SinkGone(uint64_t turn);
  void SinkOnClosed(uint64_t turn, std::function<void()> closed);
  bool IsFor(uint64_t turn) const { return phase_ == Phase::kServing && turn == turn_; }

  // Differ between streams.
  void Handshake(const std::function<void()>& then);
  void EndOutput();

  const std::shared_ptr<ConnectionHome> home_;
  Stream stream_;
  asio::steady_timer read_timer_, write_timer_;
  Phase phase_ = Phase::kIdle;
  bool is_reading_ = false;

  std::string input_;
  std::unique_ptr<char[]> space_;  // of the read that is under way
  std::optional<RequestReader> reader_;
  size_t body_bytes_ = 0;  // counted in home_->bodies_bytes

  uint64_t turn_ = 0;
  bool keeps_alive_ = false;
  bool is_head_request_ = false;
  bool is_http_1_0_ = false;
  bool has_begun_ = false;
  std::function<void()> on_closed_;

  std::deque<std::string> output_;  // the first is being written
  size_t output_bytes_ = 0;
  size_t num_lingered_ = 0;
};

inline constexpr size_t kReadBytes = size_t{16} << 10;
inline constexpr size_t kWriteBytes = size_t{64} << 10;  // between two looks at the clock
inline constexpr size_t kMaxLingerBytes = size_t{1} << 20;
inline constexpr int64_t kLingerUs = 2'000'000;

// ---- The sink

// Speaks to the connection on its own thread.
template <typename Stream>
class Connection<Stream>::Sink final : public HttpSink {
 public:
  Sink(std::shared_ptr<Connection> connection, uint64_t turn)
      : connection_(std::move(connection)), turn_(turn) {}

  // The connection's last holder must be its own thread.
  ~Sink() override {
    const std::shared_ptr<ConnectionHome> home = connection_->home_;
    asio::post(home->io,
               [connection = std::move(connection_), turn = turn_] { connection->SinkGone(turn); });
  }

  void Send(HttpReply reply) override {
    Post([reply = std::move(reply)](Connection& connection, uint64_t turn) {
      connection.SinkSend(turn, reply);
    });
  }
  void Begin(HttpReply head) override {
    Post([head = std::move(head)](Connection& connection, uint64_t turn) {
      connection.SinkBegin(turn, head);
    });
  }
  void Write(std::string bytes) override {
    Post([bytes = std::move(bytes)](Connection& connection, uint64_t turn) mutable {
      connection.SinkWrite(turn, std::move(bytes));
    });
  }
  void End() override {
    Post([](Connection& connection, uint64_t turn) { connection.SinkEnd(turn); });
  }
  void OnClosed(std::function<void()> closed) override {
    Post([closed = std::move(closed)](Connection& connection, uint64_t turn) mutable {
      connection.SinkOnClosed(turn, std::move(closed));
    });
  }

 private:
  template <typename Function>
  void Post(Function function) {
    asio::post(connection_->home_->io,
               [connection = connection_, turn = turn_, function = std::move(function)]() mutable {
                 try {
                   function(*connection, turn);
                 } catch (const std::exception&) {
                   connection->Close();  // memory ran out: for this one, not for the loop
                 }
               });
  }

  std::shared_ptr<Connection> connection_;
  const uint64_t turn_;
};

template <typename Stream>
void Connection<Stream>::SinkSend(uint64_t turn, const HttpReply& reply) {
  if (!IsFor(turn) || has_begun_) return;
  if (home_->is_draining) keeps_alive_ = false;
  Queue(FormatReply(reply, {.closes = !keeps_alive_, .has_body = !is_head_request_}));
  EndTurn();
}

template <typename Stream>
void Connection<Stream>::SinkBegin(uint64_t turn, const HttpReply& head) {
  if (!IsFor(turn) || has_begun_) return;
  has_begun_ = true;
  // Who speaks HTTP/1.0 knows no chunks: the end of the connection is that of the reply.
  if (is_http_1_0_) keeps_alive_ = false;
  Queue(FormatReply(
      head, {.end = is_http_1_0_ ? BodyEnd::kClose : BodyEnd::kChunks, .closes = !keeps_alive_}));
}

template <typename Stream>
void Connection<Stream>::SinkWrite(uint64_t turn, std::string bytes) {
  if (!IsFor(turn) || !has_begun_ || bytes.empty() || is_head_request_) return;
  Queue(is_http_1_0_ ? std::move(bytes) : FormatChunk(bytes));
}

template <typename Stream>
void Connection<Stream>::SinkEnd(uint64_t turn) {
  if (!IsFor(turn) || !has_begun_) return;
  if (!is_http_1_0_ && !is_head_request_) Queue(std::string(kLastChunk));
  EndTurn();
}

template <typename Stream>
void Connection<Stream>::SinkGone(uint64_t turn) {
  if (IsFor(turn)) Close();
}

template <typename Stream>
void Connection<Stream>::SinkOnClosed(uint64_t turn, std::function<void()> closed) {
  if (IsFor(turn)) {
    on_closed_ = std::move(closed);
  } else if (turn == turn_ && phase_ == Phase::kClosed) {
    closed();
  }
}

// ---- Reading

template <typename Stream>
void Connection<Stream>::Start() {
  Arm(read_timer_, home_->limits.header_timeout_us);
  Handshake([self = this->shared_from_this()] { self->BeginRequest(); });
}

template <typename Stream>
void Connection<Stream>::BeginRequest() {
  if (phase_ == Phase::kClosed) return;
  if (home_->is_draining && input_.empty()) return Close();
  phase_ = Phase::kIdle;
  is_head_request_ = false;
  reader_.emplace(ReadLimits{.max_header_bytes = home_->limits.header_bytes,
                             .max_body_bytes = home_->limits.body_bytes});
  Arm(read_timer_, home_->limits.idle_timeout_us);
  UseInput();
}

template <typename Stream>
void Connection<Stream>::Read() {
  if (is_reading_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kServing && input_.size() >= home_->limits.header_bytes) return;
  is_reading_ = true;
  space_ = std::make_unique_for_overwrite<char[]>(kReadBytes);
  stream_.async_read_some(asio::buffer(space_.get(), kReadBytes),
                          [self = this->shared_from_this()](ErrorCodeOfIo error, size_t num_bytes) {
                            self->OnRead(error, num_bytes);
                          });
}

template <typename Stream>
void Connection<Stream>::OnRead(ErrorCodeOfIo error, size_t num_bytes) {
  is_reading_ = false;
  const auto space = std::move(space_);
  if (phase_ == Phase::kClosed) return;
  if (error) return Close();
  if (phase_ == Phase::kLast) {
    num_lingered_ += num_bytes;
    if (num_lingered_ > kMaxLingerBytes) return Close();
    return Read();
  }
  try {
    input_.append(space.get(), num_bytes);
    if (phase_ == Phase::kServing) return Read();
    UseInput();
  } catch (const std::exception&) {
    Close();
  }
}

// Reads on until a request is complete.
template <typename Stream>
void Connection<Stream>::UseInput() {
  if (phase_ == Phase::kIdle && !input_.empty()) {
    phase_ = Phase::kHead;
    Arm(read_timer_, home_->limits.header_timeout_us);
  }
  const bool had_head = reader_->has_head();
  const size_t taken = reader_->Feed(input_);
  input_.erase(0, taken);
  if (input_.empty()) input_ = {};  // a waiting connection holds no memory for it
  if (reader_->failure()) return Reject(reader_->failure()->status, reader_->failure()->message);
  if (!had_head && reader_->has_head()) {
    OnHead();
    if (phase_ != Phase::kBody) return;
  }
  if (reader_->has_head() && taken > 0) {
    Arm(read_timer_, home_->limits.body_timeout_us);
    CountBody(reader_->body_bytes());
    if (home_->bodies_bytes > home_->limits.all_bodies_bytes) {
      return Reject(503, "too many long requests at once: try again later");
    }
  }
  if (reader_->is_done()) return Serve();
  Read();
}

template <typename Stream>
void Connection<Stream>::OnHead() {
  phase_ = Phase::kBody;
  keeps_alive_ = reader_->keeps_alive() && !home_->is_draining;
  is_http_1_0_ = reader_->is_http_1_0();
  is_head_request_ = reader_->request().method == "HEAD";
  if (std::optional<HttpReply> reply = home_->callbacks.check_head(reader_->request())) {
    ++home_->counters.rejected;
    return ReplyAndClose(*reply);
  }
  if (reader_->expects_continue() && !reader_->is_done()) {
    Queue("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

template <typename Stream>
void Connection<Stream>::Serve() {
  phase_ = Phase::kServing;
  read_timer_.cancel();
  ++turn_;
  has_begun_ = false;
  HttpRequest request = reader_->Take();
  reader_.reset();
  Read();
  const auto sink = std::make_shared<Sink>(this->shared_from_this(), turn_);
  try {
    home_->callbacks.handle(std::move(request), sink);
  } catch (const std::exception&) {
    // The sink is destroyed and closes this connection alone.
  }
}

template <typename Stream>
void Connection<Stream>::Reject(int status, const std::string& message) {
  ++home_->counters.rejected;
  ReplyAndClose(home_->callbacks.make_error(status, message));
}

template <typename Stream>
void Connection<Stream>::ReplyAndClose(const HttpReply& reply) {
  phase_ = Phase::kLast;
  keeps_alive_ = false;
  reader_.reset();
  input_ = {};
  CountBody(0);
  Queue(FormatReply(reply, {.closes = true, .has_body = !is_head_request_}));
}

template <typename Stream>
void Connection<Stream>::EndTurn() {
  on_closed_ = nullptr;
  CountBody(0);
  if (!keeps_alive_ || home_->is_draining) {
    phase_ = Phase::kLast;
    if (output_.empty()) Linger();
    return;
  }
  BeginRequest();
}

// ---- Writing

template <typename Stream>
void Connection<Stream>::Queue(std::string bytes) {
  if (phase_ == Phase::kClosed) return;
  output_bytes_ += bytes.size();
  const bool is_behind = has_begun_ && output_bytes_ > home_->limits.queued_bytes;
  output_.push_back(std::move(bytes));
  if (is_behind) return Close();
  if (output_.size() == 1) WriteNext();
}

template <typename Stream>
void Connection<Stream>::WriteNext() {
  const auto self = this->shared_from_this();
  asio::async_write(
      stream_, asio::buffer(output_.front()),
      [self](ErrorCodeOfIo error, size_t) -> size_t {
        if (error) return 0;
        self->Arm(self->write_timer_, self->home_->limits.write_timeout_us);
        return kWriteBytes;
      },
      [self](ErrorCodeOfIo error, size_t) { self->OnWritten(error); });
}

template <typename Stream>
void Connection<Stream>::OnWritten(ErrorCodeOfIo error) {
  if (phase_ == Phase::kClosed) return;
  if (error) return Close();
  output_bytes_ -= output_.front().size();
  output_.pop_front();
  if (!output_.empty()) return WriteNext();
  write_timer_.cancel();
  if (phase_ == Phase::kLast) Linger();
}

// Takes what the client still sends, so that the kernel does not throw the reply away.
template <typename Stream>
void Connection<Stream>::Linger() {
  EndOutput();
  Arm(read_timer_, kLingerUs);
  Read();
}

// ---- Ends

template <typename Stream>
void Connection<Stream>::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  read_timer_.cancel();
  write_timer_.cancel();
  ErrorCodeOfIo ignored;
  stream_.lowest_layer().close(ignored);
  CountBody(0);
  TellClosed();
}

template <typename Stream>
void Connection<Stream>::TellClosed() {
  if (const auto closed = std::exchange(on_closed_, nullptr)) closed();
}

template <typename Stream>
void Connection<Stream>::Arm(asio::steady_timer& timer, int64_t timeout_us) {
  timer.expires_after(std::chrono::microseconds(timeout_us));
  timer.async_wait([weak = this->weak_from_this(), &timer](ErrorCodeOfIo error) {
    const auto self = weak.lock();
    // It may have been armed again while this was on its way.
    if (error || !self || timer.expiry() > asio::steady_timer::clock_type::now()) return;
    self->Close();
  });
}

template <typename Stream>
void Connection<Stream>::CountBody(size_t num_bytes) {
  home_->bodies_bytes += num_bytes;
  home_->bodies_bytes -= body_bytes_;
  body_bytes_ = num_bytes;
}

}  // namespace kvern::server
