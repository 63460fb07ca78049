// EngineAnswerer: a batch's requests to the engine.
//
// One thread; the engine's collects what requests are answered. What is not finished is cancelled
// when it is destroyed; the engine must outlive it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cli/batch_run.h"
#include "kvern/engine.h"

namespace kvern::cli {

class EngineAnswerer final : public Answerer {
 public:
  explicit EngineAnswerer(Engine& engine) : engine_(engine) {}

  void Submit(size_t key, Request request) override;
  std::optional<Finished> Await(int64_t timeout_us) override;

 private:
  // What came of one request: the engine's thread, until it has ended.
  using Collected = std::vector<Completion>;
  struct Asked {
    Reply reply;
    std::shared_ptr<Collected> collected;
  };

  Finished Finish(std::map<size_t, Asked>::node_type asked);

  Engine& engine_;
  std::deque<Finished> refused_;

  std::mutex mutex_;
  std::condition_variable has_ready_;
  std::deque<size_t> ready_;  // keys of those that have ended

  std::map<size_t, Asked> asked_;  // destroyed first: its callbacks use the others
};

}  // namespace kvern::cli
