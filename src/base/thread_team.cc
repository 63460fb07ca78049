#include "base/thread_team.h"

#include <immintrin.h>

#include <algorithm>

#include "base/check.h"
#include "base/fp_env.h"
#include "base/thread_name.h"

namespace kvern {
namespace {

// A few hundred microseconds of pauses: longer than any barrier of a machine that has nothing else
// to do, shorter than a time slice.
constexpr int kPatientSpins = 20'000;
// Where waits are longer, other processes run on our cores: whoever waits then gives its core away
// at once, for some waits. Waking up costs as much as a barrier's work, so one long wait is
// followed by few of them; each further one doubles their number, and short ones lower it again.
constexpr int kImpatientSpins = 100;
constexpr int kFewImpatientWaits = 8;
constexpr int kMostImpatientWaits = 512;

// Returns when `counter` no longer holds `old`, and whether spinning was enough.
bool AwaitChange(const std::atomic<unsigned>& counter, unsigned old, int spins) {
  for (int spin = 0; spin < spins; ++spin) {
    if (counter.load(std::memory_order_acquire) != old) return true;
    _mm_pause();
  }
  counter.wait(old, std::memory_order_acquire);
  return false;
}

}  // namespace

ThreadTeam::ThreadTeam(size_t num_threads) : next_impatient_waits_(kFewImpatientWaits) {
  CHECK(num_threads > 0);
  workers_.reserve(num_threads - 1);
  for (size_t thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] {
      NameThisThread("kvern-compute");
      WorkerLoop(thread);
    });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::Run(const std::function<void(size_t)>& job) {
  const ScopedFpEnv environment;
  job_ = &job;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  job(0);
  Barrier();
}

void ThreadTeam::Barrier() {
  if (workers_.empty()) return;
  const unsigned phase = phase_.load(std::memory_order_relaxed);
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    num_arrived_.store(0, std::memory_order_relaxed);
    next_part_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    AwaitOthers(phase);
  }
}

int ThreadTeam::NumSpins() const {
  const bool is_busy = impatient_waits_.load(std::memory_order_relaxed) > 0;
  return is_busy ? kImpatientSpins : kPatientSpins;
}

void ThreadTeam::AwaitOthers(unsigned phase) {
  const int waits = impatient_waits_.load(std::memory_order_relaxed);
  const bool soon = AwaitChange(phase_, phase, NumSpins());
  if (waits > 0) return impatient_waits_.store(waits - 1, std::memory_order_relaxed);
  const int next = next_impatient_waits_.load(std::memory_order_relaxed);
  if (!soon) {
    impatient_waits_.store(next, std::memory_order_relaxed);
    next_impatient_waits_.store(std::min(2 * next, kMostImpatientWaits), std::memory_order_relaxed);
  } else if (next > kFewImpatientWaits) {
    next_impatient_waits_.store(next - next / kFewImpatientWaits, std::memory_order_relaxed);
  }
}

void ThreadTeam::WorkerLoop(size_t thread) {
  const ScopedFpEnv environment;
  unsigned seen = 0;
  while (true) {
    AwaitChange(generation_, seen, NumSpins());
    ++seen;
    if (stopping_) return;
    (*job_)(thread);
    Barrier();
  }
}

}  // namespace kvern
