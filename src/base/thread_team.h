// ThreadTeam: a fixed set of threads that run one job together, as one step of a forward pass does.
//
// Run(job) calls job(thread) once on every thread of the team, the caller being thread 0, and
// returns when all are done. Inside a job, Barrier() waits until every thread has reached it. Work
// is split by the job: into equal shares, or into parts that threads take as they come, so that one
// which the system holds up leaves more to the others. What a part gives must not depend on who
// computes it, nor on where parts begin. Threads spin briefly between jobs and at barriers, then
// park; where other processes take the cores, they park at once.
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

  // Inside a job, by every thread: calls work(begin, end) for ranges that together are [0, count),
  // each once, by whoever comes first. At most once between two barriers.
  template <typename Work>
  void TakeParts(size_t count, const Work& work);

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
  std::atomic<int> next_impatient_waits_;            // after the next long wait
  alignas(64) std::atomic<size_t> next_part_{0};     // the last thread at a barrier resets it
  std::vector<std::thread> workers_;
};

template <typename Work>
void ThreadTeam::TakeParts(size_t count, const Work& work) {
  constexpr size_t kPartsPerThread = 6;
  if (workers_.empty()) return work(size_t{0}, count);
  const size_t num_parts = kPartsPerThread * size();
  while (true) {
    const size_t part = next_part_.fetch_add(1, std::memory_order_relaxed);
    if (part >= num_parts) return;
    const size_t begin = count * part / num_parts, end = count * (part + 1) / num_parts;
    if (begin < end) work(begin, end);
  }
}

}  // namespace kvern
