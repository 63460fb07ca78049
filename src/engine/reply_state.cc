#include "engine/reply_state.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/check.h"

namespace kvern::engine {
namespace {

// A report of a request whose step takes longer is as old as the last one.
constexpr auto kReportPatience = std::chrono::milliseconds(50);
constexpr int64_t kMaxWaitUs = int64_t{3'600'000'000} * 24 * 365;  // what clocks can add

Request WithoutText(const Request& request) {
  Request copy = request;
  copy.text = {};
  return copy;
}

}  // namespace

ReplyState::ReplyState(std::shared_ptr<ReplyHome> home, const Request& request, uint64_t id)
    : home_(std::move(home)),
      request_(WithoutText(request)),
      id_(id),
      max_queued_(request.max_queued_chunks),
      hasher_(request.n),
      finishes_(request.n, kvern::FinishReason::kFailed) {
  report_.id = id;
  report_.seed = *request.seed;
  report_.prompt_tokens = request.tokens.size();
}

ReplyState::~ReplyState() = default;

bool ReplyState::HasRoom() const {
  const std::lock_guard lock(mutex_);
  if (max_queued_ == 0 || is_abandoned_ || queue_.size() < max_queued_) return true;
  wants_wake_ = true;
  return false;
}

void ReplyState::Take(const Chunk& chunk) {
  hasher_.Add(chunk);
  {
    const std::lock_guard lock(mutex_);
    if (chunk.finish) finishes_[chunk.completion] = *chunk.finish;
    if (!request_.on_chunk) {
      if (is_abandoned_) return;
      queue_.push_back(chunk);
    }
  }
  if (!request_.on_chunk) {
    changed_.notify_all();
    return;
  }
  const std::lock_guard lock(callback_mutex_);
  if (is_callback_over_) return;
  try {
    request_.on_chunk(chunk);
  } catch (...) {
    is_callback_over_ = true;
    throw;
  }
}

void ReplyState::Finish(Report report) {
  final_report_ = std::move(report);
  home_->finished.push_back(shared_from_this());
}

void ReplyState::SetReport(Report report) {
  {
    const std::lock_guard lock(mutex_);
    report_ = std::move(report);
    report_.id = id_;
    ++num_reports_;
  }
  changed_.notify_all();
}

void ReplyState::Refuse(Error error) {
  Report report;
  report.seed = *request_.seed;
  report.prompt_tokens = request_.tokens.size();
  report.error = std::move(error);
  Finish(std::move(report));
}

void ReplyState::Complete() {
  {
    const std::lock_guard lock(mutex_);
    report_ = *std::move(final_report_);
    report_.id = id_;
    is_complete_ = true;
  }
  changed_.notify_all();
  if (!request_.on_end) return;
  const std::lock_guard lock(callback_mutex_);
  // A callback that threw is called no more, but its request has ended all the same.
  if (!is_reader_gone_) request_.on_end();
}

std::optional<Chunk> ReplyState::Next(std::optional<int64_t> timeout_us) {
  std::optional<Chunk> chunk;
  bool wakes = false;
  {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return !queue_.empty() || is_complete_; };
    if (!is_there()) {
      CHECK(!home_->mailbox.IsOwner());  // on_chunk would wait for itself
      if (timeout_us) {
        const auto timeout = std::chrono::microseconds(std::min(*timeout_us, kMaxWaitUs));
        changed_.wait_for(lock, timeout, is_there);
      } else {
        changed_.wait(lock, is_there);
      }
    }
    if (queue_.empty()) return std::nullopt;
    chunk = std::move(queue_.front());
    queue_.pop_front();
    wakes = wants_wake_ && 2 * queue_.size() < max_queued_;
    if (wakes) wants_wake_ = false;
  }
  if (wakes) Wake();
  return chunk;
}

bool ReplyState::IsReadToTheEnd() const {
  const std::lock_guard lock(mutex_);
  return is_complete_ && queue_.empty();
}

// The next step asks HasRoom().
void ReplyState::Wake() {
  home_->mailbox.Post([](Core&) {});
}

void ReplyState::Cancel() {
  home_->mailbox.Post([self = shared_from_this()](Core& core) {
    if (self->core_id()) core.Cancel(*self->core_id());
  });
}

void ReplyState::Abandon() {
  {
    const std::lock_guard lock(callback_mutex_);
    is_callback_over_ = true;
    is_reader_gone_ = true;
  }
  {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    queue_.clear();
    if (is_complete_) return;
  }
  try {
    Cancel();
  } catch (const std::bad_alloc&) {
    // It goes on, unread.
  }
}

void ReplyState::AskForReport() {
  home_->mailbox.Post([self = shared_from_this()](Core& core) {
    if (!self->core_id()) return;
    std::optional<Report> report = core.report(*self->core_id());
    if (report) self->SetReport(*std::move(report));
  });
}

Report ReplyState::GetReport() {
  std::unique_lock lock(mutex_);
  if (!is_complete_ && !home_->mailbox.IsOwner()) {
    const uint64_t num_before = num_reports_;
    lock.unlock();
    AskForReport();
    lock.lock();
    changed_.wait_for(lock, kReportPatience,
                      [&] { return is_complete_ || num_reports_ != num_before; });
  }
  // The receipt is made here, for the engine's thread has better things to do.
  if (is_complete_ && report_.receipt.empty()) {
    const auto receipt = MakeReceipt(home_->model, request_, hasher_.Summary(), home_->context);
    if (receipt) report_.receipt = ToJson(*receipt);
  }
  return report_;
}

kvern::FinishReason ReplyState::FinishOf(size_t completion) const {
  const std::lock_guard lock(mutex_);
  return finishes_[completion];
}

}  // namespace kvern::engine
