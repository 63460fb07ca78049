// ThreadTeam: a fixed set of threads that run one job together, as one step of a forward pass does.
//
// Run(job) calls job(thread) once on every thread of the team, the caller being thread 0, and
// returns when all are done. Inside a job, Barrier() waits until every thread has reached it. Work
// is split statically by the job (Share below), so no result depends on timing. Threads spin
// briefly between jobs and at barriers, then park; where other processes take the cores, they park
// at once.
//
// One thread at a time may call Run(). Every job runs in the defined floating-point environment
// (N7).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace kvern {

class ThreadTeam {
 public:
  // `num_threads` ≥ 1, the caller included.
  explicit ThreadTeam(size_t num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  void Run(const std::function<void(size_t thread)>& job);

  // Only inside a job, and by every thread of it equally often.
  void Barrier();

  size_t size() const { return workers_.size() + 1; }

  // The half-open range of `count` items that `thread` owns.
  std::pair<size_t, size_t> Share(size_t count, size_t thread) const {
    return {count * thread / size(), count * (thread + 1) / size()};
  }

 private:
  void WorkerLoop(size_t thread);
  int NumSpins() const;
  void AwaitOthers(unsigned phase);

  const std::function<void(size_t)>* job_ = nullptr;
  bool stopping_ = false;
  // Each counter on its own cache line: they are what threads spin on.
  alignas(64) std::atomic<unsigned> generation_{0};
  alignas(64) std::atomic<unsigned> num_arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
  alignas(64) std::atomic<int> impatient_waits_{0};  // left, before threads spin long again
  std::vector<std::thread> workers_;
};

}  // namespace kvern
