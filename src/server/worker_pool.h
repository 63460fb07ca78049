// WorkerPool: threads for what takes longer than moving bytes and must not wait for the model:
// JSON, templates, tokenizing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvern::server {

class WorkerPool {
 public:
  explicit WorkerPool(size_t num_threads);
  ~WorkerPool();  // after all that was posted, and all places
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Any thread. `work` may not throw.
  void Post(std::function<void()> work);

  // A place for work that comes later, from whatever thread: the pool's end waits until it came, or
  // the place was given up.
  class Place {
   public:
    explicit Place(WorkerPool& pool);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void Post(std::function<void()> work) { pool_.Post(std::move(work)); }

   private:
    WorkerPool& pool_;
  };

  size_t num_waiting() const;

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> work_;
  size_t num_places_ = 0;
  std::condition_variable place_ended_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvern::server
