#include "cli/batch_engine.h"

#include <chrono>
#include <utility>

#include "base/check.h"
#include "engine/collect.h"

namespace kvern::cli {

void EngineAnswerer::Submit(size_t key, Request request) {
  const auto collected = std::make_shared<Collected>(request.n);
  request.on_chunk = [collected](const Chunk& chunk) {
    Collect(chunk, (*collected)[chunk.completion]);
  };
  request.on_end = [this, key] {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(key);
    }
    has_ready_.notify_one();
  };
  auto reply = engine_.Submit(std::move(request));
  if (!reply.ok()) {
    refused_.push_back({key, reply.error()});
    return;
  }
  CHECK(asked_.emplace(key, Asked{std::move(reply).value(), collected}).second);
}

std::optional<Answerer::Finished> EngineAnswerer::Await(int64_t timeout_us) {
  if (!refused_.empty()) {
    Finished refused = std::move(refused_.front());
    refused_.pop_front();
    return refused;
  }
  std::unique_lock lock(mutex_);
  has_ready_.wait_for(lock, std::chrono::microseconds(timeout_us),
                      [this] { return !ready_.empty(); });
  if (ready_.empty()) return std::nullopt;
  const size_t key = ready_.front();
  ready_.pop_front();
  lock.unlock();
  return Finish(asked_.extract(key));
}

Answerer::Finished EngineAnswerer::Finish(std::map<size_t, Asked>::node_type asked) {
  Result<Answer> answer = asked.mapped().reply.Wait();  // for the report: the chunks are here
  if (answer.ok()) answer->completions = *std::move(asked.mapped().collected);
  return {asked.key(), std::move(answer)};
}

}  // namespace kvern::cli
