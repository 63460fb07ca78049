// LiveAnswers: the answers that are on their way to clients.
//
// An answer is made on the engine's thread, token by token, written on a worker's, chunk after
// chunk in their order, and sent on the connection's. Whoever goes first, the request ends within a
// step and nothing is written after it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kvern/engine.h"
#include "server/answer_observer.h"
#include "server/http/message.h"
#include "server/worker_pool.h"

namespace kvern::server {

// What a protocol makes of an answer. Called by one thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual void Take(const Chunk& chunk) = 0;
  // Nothing came for a while.
  virtual void Ping() = 0;
  // All that will come has come. The writer is not called any more.
  virtual void End(const Report& report) = 0;
};

class LiveAnswers {
 public:
  // All must outlive it.
  LiveAnswers(const Clock& clock, WorkerPool& pool, std::vector<AnswerObserver*> observers,
              int64_t ping_us);
  ~LiveAnswers();  // WaitUntilNone() first
  LiveAnswers(const LiveAnswers&) = delete;
  LiveAnswers& operator=(const LiveAnswers&) = delete;

  // Asks the engine. `writer` gets the answer; where the connection of `sink` closes it is
  // cancelled. Errors: those of Engine::Submit(), and the writer is not called.
  Status Start(Engine& engine, Request request, const std::shared_ptr<HttpSink>& sink,
               std::unique_ptr<AnswerWriter> writer, AnswerInfo info);

  size_t size() const;
  // False where there is none of that id.
  bool Cancel(const std::string& id);
  void CancelAll();
  void WaitUntilNone();

 private:
  class Live;

  template <typename Tell>
  void TellObservers(const Tell& tell) noexcept;
  void Remove(const std::string& id);
  void PingLoop(int64_t ping_us);

  const Clock& clock_;
  WorkerPool& pool_;
  const std::vector<AnswerObserver*> observers_;
  mutable std::mutex mutex_;
  std::condition_variable removed_, is_over_changed_;
  std::unordered_map<std::string, std::shared_ptr<Live>> live_;  // by AnswerInfo::id
  bool is_over_ = false;
  std::thread pinger_;
};

}  // namespace kvern::server
