// EngineAnswerer: a batch's requests to the engine.
//
// Engine::Submit() waits for the step that is under way, so that one caller gets one request into a
// step: threads of its own submit. The functions are for one thread. What is not finished is
// cancelled when it is destroyed; the engine must outlive it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/batch_run.h"
#include "kvern/engine.h"

namespace kvern::cli {

class EngineAnswerer final : public Answerer {
 public:
  explicit EngineAnswerer(Engine& engine);
  ~EngineAnswerer() override;

  void Submit(size_t key, Request request) override;
  std::optional<Finished> Await(int64_t timeout_us) override;

 private:
  // What one request has been answered so far.
  struct Asked {
    std::vector<Completion> completions;  // the engine's thread, until all have finished
    size_t num_unfinished = 0;
    std::optional<Reply> reply;  // once Submit() has returned
    std::optional<Error> error;  // that it was refused with
  };

  void SubmitThem();  // on a thread of its own
  void Take(size_t key, const Chunk& chunk);
  Finished Collect(size_t key, Asked& asked);

  Engine& engine_;

  std::mutex mutex_;
  std::condition_variable has_waiting_;
  std::condition_variable has_ready_;
  bool is_ending_ = false;
  std::deque<std::pair<size_t, Request>> waiting_;  // to be submitted
  std::map<size_t, std::unique_ptr<Asked>> asked_;
  std::deque<size_t> ready_;  // finished, or refused

  std::vector<std::thread> threads_;
};

}  // namespace kvern::cli
