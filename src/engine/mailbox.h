// Mailbox: what other threads want of a core, done by the engine's thread between two steps.
//
// Thread-safe. After Close() nothing more goes in; the engine's thread still does what is there.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/core.h"

namespace kvern::engine {

class Mailbox {
 public:
  using Task = std::function<void(Core&)>;  // must not throw

  // False if closed: the task is not done.
  bool Post(Task task);

  // The same, and waits until it is done. REQUIRES: not on the engine's thread.
  bool Call(const Task& task);

  void Close();

  // Whose thread RunAll() is called on. Before anything is posted.
  void SetOwner(std::thread::id owner) { owner_ = owner; }
  bool IsOwner() const { return std::this_thread::get_id() == owner_; }

  // The engine's thread: does what is there. False if there was nothing.
  bool RunAll(Core& core);
  // Waits for a task or Close(), no longer than this.
  void Wait(std::optional<int64_t> timeout_us);
  bool closed() const;

 private:
  std::thread::id owner_;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable done_;
  std::vector<Task> tasks_;
  bool closed_ = false;
};

}  // namespace kvern::engine
