#include "server/live_answers.h"

#include <chrono>
#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_name.h"

namespace kvern::server {

namespace {

constexpr int64_t kWatchUs = 100'000;  // between two reports of a prompt that is computed

}  // namespace

// Its mailbox has three writers: the engine's thread, the connection's, and the pinger. A worker
// empties it; at most one at a time.
class LiveAnswers::Live : public std::enable_shared_from_this<Live> {
 public:
  Live(LiveAnswers& home, AnswerInfo info, std::unique_ptr<AnswerWriter> writer)
      : home_(home),
        info_(std::move(info)),
        writer_(std::move(writer)),
        wants_reports_(writer_->wants_reports()),
        needs_report_(wants_reports_),
        begin_us_(home.clock_.now_us()),
        heard_us_(begin_us_) {}

  const AnswerInfo& info() const { return info_; }
  bool wants_reports() const { return wants_reports_; }

  // Chunks that came before wait for it.
  void SetReply(Reply reply) {
    const std::lock_guard lock(mutex_);
    reply_.emplace(std::move(reply));
    if (is_cancelled_) reply_->Cancel();
    Schedule();
  }

  void Take(const Chunk& chunk) {
    const int64_t now_us = home_.clock_.now_us();
    std::optional<int64_t> took_us;
    {
      const std::lock_guard lock(mutex_);
      if (chunk.completion == 0) {  // others of the same step would come at the same time
        took_us = std::exchange(took_us_, now_us);
        if (chunk.finish) finish_ = chunk.finish;
      }
      chunks_.push_back(chunk);
      Schedule();
    }
    if (chunk.completion != 0 || chunk.tokens.empty()) return;
    home_.TellObservers([&](AnswerObserver& observer) {
      if (took_us) {
        observer.OnGap(now_us - *took_us);
      } else {
        observer.OnFirstToken(now_us - begin_us_);
      }
    });
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
    if (wants_reports_ && !took_us_) {
      needs_report_ = true;
      Schedule();
    }
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
    while (!chunks_.empty() || needs_ping_ || needs_report_) {
      const std::deque<Chunk> chunks = std::exchange(chunks_, {});
      const bool pings = std::exchange(needs_ping_, false) && chunks.empty();
      const bool is_first = !chunks.empty() && !std::exchange(has_written_, true);
      const bool sees = std::exchange(needs_report_, false) || (wants_reports_ && is_first);
      if (!chunks.empty()) heard_us_ = home_.clock_.now_us();
      lock.unlock();
      if (writer_) {
        if (sees) writer_->See(reply_->report());
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
    const Report report = reply_->report();
    if (!std::exchange(has_told_end_, true)) {
      home_.TellObservers(
          [&](AnswerObserver& observer) { observer.OnEnd(info_, report, finish_); });
    }
    if (writer_) {
      writer_->End(report);
      writer_.reset();
    }
    home_.Remove(info_.id);
  }

  LiveAnswers& home_;
  const AnswerInfo info_;
  std::unique_ptr<AnswerWriter> writer_;  // the worker's
  const bool wants_reports_;

  std::mutex mutex_;
  std::deque<Chunk> chunks_;
  bool has_ended_ = false;
  bool is_cancelled_ = false;
  bool needs_ping_ = false;
  bool needs_report_;
  bool has_written_ = false;
  bool is_scheduled_ = false;
  const int64_t begin_us_;
  std::optional<int64_t> took_us_;      // when the last chunk of completion 0 came
  std::optional<FinishReason> finish_;  // of completion 0
  bool has_told_end_ = false;           // the worker's
  int64_t heard_us_;                    // when the client last heard of it
  std::optional<Reply> reply_;
};

LiveAnswers::LiveAnswers(const Clock& clock, WorkerPool& pool,
                         std::vector<AnswerObserver*> observers, int64_t ping_us)
    : clock_(clock),
      pool_(pool),
      observers_(std::move(observers)),
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

// What they have no memory for is not told; the answer goes on.
template <typename Tell>
void LiveAnswers::TellObservers(const Tell& tell) noexcept {
  for (AnswerObserver* const observer : observers_) {
    try {
      tell(*observer);
    } catch (const std::exception&) {
    }
  }
}

Status LiveAnswers::Start(Engine& engine, Request request, const std::shared_ptr<HttpSink>& sink,
                          std::unique_ptr<AnswerWriter> writer, AnswerInfo info) {
  const std::string id = info.id;
  const auto live = std::make_shared<Live>(*this, std::move(info), std::move(writer));
  {
    const std::lock_guard lock(mutex_);
    CHECK(live_.emplace(id, live).second);
    if (live->wants_reports()) ++num_watching_;
  }
  if (live->wants_reports()) is_over_changed_.notify_all();
  request.on_chunk = [weak = std::weak_ptr(live)](const Chunk& chunk) {
    if (const auto self = weak.lock()) self->Take(chunk);
  };
  request.on_end = [weak = std::weak_ptr(live)] {
    if (const auto self = weak.lock()) self->TakeEnd();
  };
  Result<Reply> reply = engine.Submit(std::move(request));
  if (!reply.ok()) {
    Remove(id);
    return reply.error();
  }
  TellObservers([&](AnswerObserver& observer) { observer.OnBegin(live->info(), reply->id()); });
  live->SetReply(std::move(reply).value());
  sink->OnClosed([weak = std::weak_ptr(live)] {
    if (const auto self = weak.lock()) self->Cancel();
  });
  return {};
}

bool LiveAnswers::Cancel(const std::string& id) {
  std::shared_ptr<Live> live;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(id); found != live_.end()) live = found->second;
  }
  if (live) live->Cancel();
  return live != nullptr;
}

size_t LiveAnswers::size() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

void LiveAnswers::CancelAll() {
  std::vector<std::shared_ptr<Live>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, live] : live_) all.push_back(live);
  }
  for (const auto& live : all) live->Cancel();
}

void LiveAnswers::WaitUntilNone() {
  std::unique_lock lock(mutex_);
  removed_.wait(lock, [this] { return live_.empty(); });
}

void LiveAnswers::Remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found->second->wants_reports()) --num_watching_;
  live_.erase(found);
  removed_.notify_all();  // with the lock: afterwards all of this may be gone
}

void LiveAnswers::PingLoop(int64_t ping_us) {
  NameThisThread("kvern-ping");
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const int64_t period_us = num_watching_ > 0 ? kWatchUs : ping_us / 4;
    is_over_changed_.wait_for(lock, std::chrono::microseconds(period_us));
    std::vector<std::shared_ptr<Live>> all;
    for (const auto& [id, live] : live_) all.push_back(live);
    lock.unlock();
    const int64_t now_us = clock_.now_us();
    for (const auto& live : all) live->PingIfQuiet(now_us, ping_us);
    all.clear();
    lock.lock();
  }
}

}  // namespace kvern::server
