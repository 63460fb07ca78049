#include "engine/mailbox.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace kvern::engine {

bool Mailbox::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    tasks_.push_back(std::move(task));
  }
  posted_.notify_one();
  return true;
}

bool Mailbox::Call(const Task& task) {
  CHECK(!IsOwner());
  bool is_done = false;
  const bool is_posted = Post([&](Core& core) {
    task(core);
    const std::lock_guard lock(mutex_);
    is_done = true;
    done_.notify_all();
  });
  if (!is_posted) return false;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return is_done; });
  return true;
}

void Mailbox::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  posted_.notify_one();
}

bool Mailbox::RunAll(Core& core) {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) task(core);
  return !tasks.empty();
}

void Mailbox::Wait(std::optional<int64_t> timeout_us) {
  std::unique_lock lock(mutex_);
  const auto is_needed = [&] { return closed_ || !tasks_.empty(); };
  if (timeout_us) {
    posted_.wait_for(lock, std::chrono::microseconds(*timeout_us), is_needed);
  } else {
    posted_.wait(lock, is_needed);
  }
}

bool Mailbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace kvern::engine
