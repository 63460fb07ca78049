#include "server/worker_pool.h"

#include <utility>

#include "base/thread_name.h"

namespace kvern::server {

WorkerPool::WorkerPool(size_t num_threads) {
  for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() {
  {
    std::unique_lock lock(mutex_);
    place_ended_.wait(lock, [this] { return num_places_ == 0; });
    is_over_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

WorkerPool::Place::Place(WorkerPool& pool) : pool_(pool) {
  const std::lock_guard lock(pool_.mutex_);
  ++pool_.num_places_;
}

WorkerPool::Place::~Place() {
  const std::lock_guard lock(pool_.mutex_);
  --pool_.num_places_;
  pool_.place_ended_.notify_all();  // with the lock: afterwards the pool may be gone
}

void WorkerPool::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  has_work_.notify_one();
}

size_t WorkerPool::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return work_.size();
}

void WorkerPool::Run() {
  NameThisThread("kvern-worker");
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_over_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds may take other locks when it is destroyed
    lock.lock();
  }
}

}  // namespace kvern::server
