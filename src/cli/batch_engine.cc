#include "cli/batch_engine.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace kvern::cli {

void EngineAnswerer::Submit(size_t key, Request request) {
  const auto collected = std::make_shared<Collected>();
  collected->completions.resize(request.n);
  collected->num_unfinished = request.n;
  request.on_chunk = [this, key, collected](const Chunk& chunk) { Take(key, *collected, chunk); };
  auto reply = engine_.Submit(std::move(request));
  if (!reply.ok()) {
    refused_.push_back({key, reply.error()});
    return;
  }
  CHECK(asked_.emplace(key, Asked{std::move(reply).value(), collected}).second);
}

void EngineAnswerer::Take(size_t key, Collected& collected, const Chunk& chunk) {
  Completion& completion = collected.completions[chunk.completion];
  completion.tokens.insert(completion.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  completion.text += chunk.text;
  if (!chunk.finish) return;
  completion.finish = *chunk.finish;
  if (--collected.num_unfinished > 0) return;
  {
    const std::lock_guard lock(mutex_);
    ready_.push_back(key);
  }
  has_ready_.notify_one();
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
  while (!ready_.empty()) {
    const size_t key = ready_.front();
    ready_.pop_front();
    // FindFinished() may have been faster.
    if (auto asked = asked_.extract(key); !asked.empty()) {
      lock.unlock();
      return Finish(std::move(asked));
    }
  }
  lock.unlock();
  if (timeout_us == 0) return std::nullopt;
  const auto key = FindFinished();
  return key ? std::optional(Finish(asked_.extract(*key))) : std::nullopt;
}

std::optional<size_t> EngineAnswerer::FindFinished() const {
  for (const auto& [key, asked] : asked_) {
    if (asked.reply.finished()) return key;
  }
  return std::nullopt;
}

Answerer::Finished EngineAnswerer::Finish(std::map<size_t, Asked>::node_type asked) {
  Result<Answer> answer = asked.mapped().reply.Wait();  // for the report: the chunks are here
  if (answer.ok()) answer->completions = std::move(asked.mapped().collected->completions);
  return {asked.key(), std::move(answer)};
}

}  // namespace kvern::cli
