#include "cli/batch_engine.h"

#include <chrono>
#include <new>

#include "base/check.h"

namespace kvern::cli {
namespace {

constexpr size_t kNumThreads = 16;

}  // namespace

EngineAnswerer::EngineAnswerer(Engine& engine) : engine_(engine) {
  for (size_t i = 0; i < kNumThreads; ++i) threads_.emplace_back([this] { SubmitThem(); });
}

EngineAnswerer::~EngineAnswerer() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  has_waiting_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  // Destroying a reply waits for its on_chunk, which takes the mutex.
  for (auto& [key, asked] : asked_) asked->reply.reset();
}

void EngineAnswerer::Submit(size_t key, Request request) {
  request.max_queued_chunks = 0;
  request.on_chunk = [this, key](const Chunk& chunk) { Take(key, chunk); };
  auto asked = std::make_unique<Asked>();
  asked->completions.resize(request.n);
  asked->num_unfinished = request.n;
  {
    const std::lock_guard lock(mutex_);
    CHECK(asked_.emplace(key, std::move(asked)).second);
    waiting_.emplace_back(key, std::move(request));
  }
  has_waiting_.notify_one();
}

void EngineAnswerer::SubmitThem() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_waiting_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    auto [key, request] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Result<Reply> reply = engine_.Submit(std::move(request));
    lock.lock();
    Asked& asked = *asked_.at(key);
    if (reply.ok()) {
      asked.reply = std::move(reply).value();
    } else {
      asked.error = reply.error();
    }
    if (!asked.reply || asked.num_unfinished == 0) ready_.push_back(key);
    has_ready_.notify_one();
  }
}

void EngineAnswerer::Take(size_t key, const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  Asked& asked = *asked_.at(key);
  Completion& completion = asked.completions[chunk.completion];
  try {
    completion.tokens.insert(completion.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    completion.text += chunk.text;
  } catch (const std::bad_alloc&) {
    // A callback that throws is not called again: this is the request's end.
    asked.error = Errorf(ErrorCode::kOutOfMemory, "out of memory for the answer");
    asked.num_unfinished = 1;
  }
  if (chunk.finish) completion.finish = *chunk.finish;
  if (chunk.finish || asked.error) --asked.num_unfinished;
  if (asked.num_unfinished == 0 && asked.reply) {
    ready_.push_back(key);
    has_ready_.notify_one();
  }
  if (asked.error) throw std::bad_alloc();
}

std::optional<Answerer::Finished> EngineAnswerer::Await(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  has_ready_.wait_for(lock, std::chrono::microseconds(timeout_us),
                      [this] { return !ready_.empty(); });
  if (ready_.empty()) return std::nullopt;
  const auto entry = asked_.extract(ready_.front());
  ready_.pop_front();
  lock.unlock();
  return Collect(entry.key(), *entry.mapped());
}

Answerer::Finished EngineAnswerer::Collect(size_t key, Asked& asked) {
  if (asked.error) return {key, *asked.error};
  Result<Answer> answer = asked.reply->Wait();  // for the report: the chunks are here
  if (answer.ok()) answer->completions = std::move(asked.completions);
  return {key, std::move(answer)};
}

}  // namespace kvern::cli
