#include "server/live_answers.h"

#include <chrono>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvern::server {

// Its mailbox has three writers: the engine's thread, the connection's, and the pinger. A worker
// empties it; at most one at a time.
class LiveAnswers::Live : public std::enable_shared_from_this<Live> {
 public:
  Live(LiveAnswers& home, uint64_t key, std::string tenant, std::unique_ptr<AnswerWriter> writer)
      : home_(home),
        key_(key),
        tenant_(std::move(tenant)),
        writer_(std::move(writer)),
        heard_us_(home.clock_.now_us()) {}

  // Chunks that came before wait for it.
  void SetReply(Reply reply) {
    const std::lock_guard lock(mutex_);
    reply_.emplace(std::move(reply));
    if (is_cancelled_) reply_->Cancel();
    Schedule();
  }

  void Take(const Chunk& chunk) {
    const int64_t now_us = home_.clock_.now_us();
    const std::lock_guard lock(mutex_);
    if (chunk.completion == 0) {  // others of the same step would come at the same time
      if (took_us_) home_.metrics_.CountGap(now_us - *took_us_);
      took_us_ = now_us;
    }
    chunks_.push_back(chunk);
    Schedule();
  }

  void TakeEnd() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    Schedule();
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    if (reply_) reply_->Cancel();
  }

  void PingIfQuiet(int64_t now_us, int64_t ping_us) {
    const std::lock_guard lock(mutex_);
    if (now_us - heard_us_ < ping_us) return;
    heard_us_ = now_us;
    needs_ping_ = true;
    Schedule();
  }

 private:
  // With the mutex held.
  void Schedule() {
    if (is_scheduled_ || !reply_) return;
    is_scheduled_ = true;
    home_.pool_.Post([self = shared_from_this()] { self->Work(); });
  }

  // What a writer throws ends its answer alone: without a writer the connection closes.
  void Work() {
    try {
      Write();
    } catch (const std::exception&) {
      writer_.reset();
      Cancel();
      Write();
    }
  }

  void Write() {
    std::unique_lock lock(mutex_);
    while (!chunks_.empty() || needs_ping_) {
      const std::deque<Chunk> chunks = std::exchange(chunks_, {});
      const bool pings = std::exchange(needs_ping_, false) && chunks.empty();
      if (!chunks.empty()) heard_us_ = home_.clock_.now_us();
      lock.unlock();
      if (writer_) {
        for (const Chunk& chunk : chunks) writer_->Take(chunk);
        if (pings) writer_->Ping();
      }
      lock.lock();
    }
    if (!has_ended_) {
      is_scheduled_ = false;  // what comes from now on schedules it again
      return;
    }
    lock.unlock();
    // The engine is done with it: nobody else uses the reply now.
    if (writer_) {
      const Report report = reply_->report();
      home_.metrics_.CountAnswer(report, tenant_);
      writer_->End(report);
      writer_.reset();
    }
    home_.Remove(key_);
  }

  LiveAnswers& home_;
  const uint64_t key_;
  const std::string tenant_;
  std::unique_ptr<AnswerWriter> writer_;  // the worker's

  std::mutex mutex_;
  std::deque<Chunk> chunks_;
  bool has_ended_ = false;
  bool is_cancelled_ = false;
  bool needs_ping_ = false;
  bool is_scheduled_ = false;
  std::optional<int64_t> took_us_;  // when the last chunk of completion 0 came
  int64_t heard_us_;                // when the client last heard of it
  std::optional<Reply> reply_;
};

LiveAnswers::LiveAnswers(const Clock& clock, WorkerPool& pool, Metrics& metrics, int64_t ping_us)
    : clock_(clock),
      pool_(pool),
      metrics_(metrics),
      pinger_([this, ping_us] { PingLoop(ping_us); }) {}

LiveAnswers::~LiveAnswers() {
  {
    const std::lock_guard lock(mutex_);
    CHECK(live_.empty());
    is_over_ = true;
  }
  is_over_changed_.notify_all();
  pinger_.join();
}

Status LiveAnswers::Start(Engine& engine, Request request, const std::shared_ptr<HttpSink>& sink,
                          std::unique_ptr<AnswerWriter> writer) {
  std::shared_ptr<Live> live;
  uint64_t key = 0;
  {
    const std::lock_guard lock(mutex_);
    key = ++last_key_;
    live = std::make_shared<Live>(*this, key, request.tenant, std::move(writer));
    live_.emplace(key, live);
  }
  request.on_chunk = [weak = std::weak_ptr(live)](const Chunk& chunk) {
    if (const auto self = weak.lock()) self->Take(chunk);
  };
  request.on_end = [weak = std::weak_ptr(live)] {
    if (const auto self = weak.lock()) self->TakeEnd();
  };
  Result<Reply> reply = engine.Submit(std::move(request));
  if (!reply.ok()) {
    Remove(key);
    return reply.error();
  }
  live->SetReply(std::move(reply).value());
  sink->OnClosed([weak = std::weak_ptr(live)] {
    if (const auto self = weak.lock()) self->Cancel();
  });
  return {};
}

size_t LiveAnswers::size() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

void LiveAnswers::CancelAll() {
  std::vector<std::shared_ptr<Live>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, live] : live_) all.push_back(live);
  }
  for (const auto& live : all) live->Cancel();
}

void LiveAnswers::WaitUntilNone() {
  std::unique_lock lock(mutex_);
  removed_.wait(lock, [this] { return live_.empty(); });
}

void LiveAnswers::Remove(uint64_t key) {
  {
    const std::lock_guard lock(mutex_);
    live_.erase(key);
  }
  removed_.notify_all();
}

void LiveAnswers::PingLoop(int64_t ping_us) {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    is_over_changed_.wait_for(lock, std::chrono::microseconds(ping_us / 4));
    std::vector<std::shared_ptr<Live>> all;
    for (const auto& [key, live] : live_) all.push_back(live);
    lock.unlock();
    const int64_t now_us = clock_.now_us();
    for (const auto& live : all) live->PingIfQuiet(now_us, ping_us);
    all.clear();
    lock.lock();
  }
}

}  // namespace kvern::server
