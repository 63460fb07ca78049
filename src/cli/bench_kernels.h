// BenchKernels: how fast single kernels are, and how much of this machine that is.
//
// A case is one kernel on one shape. Cases that share data form a group, whose data exist while it
// runs. The best of several runs counts, since all that disturbs a run slows it; the runs of a
// group's cases take turns with the measurement of the machine's limits, so that what disturbs for
// a while disturbs all alike. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "compute/isa.h"

namespace kvern::cli {

// What a kernel is compared with.
enum class Limit {
  kRead,  // bytes per second of memory
  kDot,   // integer operations per second, a multiplication and an addition each counted
  kFma,   // the same of floats
  kNone,  // counts elements
};
inline constexpr size_t kNumLimits = 3;

// Of the data that kernels run on.
inline constexpr uint64_t kKernelSeed = 1;

struct KernelCase {
  std::string kernel;  // "gemv"
  std::string type;    // "Q4_1"; may be empty
  std::string shape;   // "1 token, 1536 inputs"
  Limit limit;
  double work;  // of a run: bytes read, operations or elements, of all threads together
  // Runs once on the team.
  std::function<void(ThreadTeam& team)> run;
};

struct KernelGroup {
  std::vector<KernelCase> cases;
  // Makes the data that the cases run on, which go with the group.
  // The largest team helps, and tells how many threads there will be.
  std::function<Status(ThreadTeam& team)> load;
};

// "gemv Q4_1 1 token": what --only is compared with.
std::string CaseName(const KernelCase& kernel);

struct KernelResult {
  std::string kernel;
  std::string type;
  std::string shape;
  Limit limit;
  size_t team;     // index among the numbers of threads
  double seconds;  // of the best run
  double rate;     // work per second
};

// The machine's limits with one number of threads, per second; grow with every measurement.
using Limits = std::array<double, kNumLimits>;

class KernelBench {
 public:
  // `isa` must outlive it. Errors: kOutOfMemory.
  static Result<KernelBench> Create(const compute::Isa* isa, const std::vector<uint32_t>& threads,
                                    uint32_t rounds);

  // Runs all cases of a group on each number of threads. Errors: those of its load().
  Status Run(KernelGroup group);

  const std::vector<KernelResult>& results() const { return results_; }
  // Teams are in the order of `threads`.
  size_t num_teams() const { return teams_.size(); }
  size_t num_threads(size_t team) const { return teams_[team]->size(); }
  const Limits& limits(size_t team) const { return limits_[team]; }

 private:
  KernelBench() = default;

  ThreadTeam& LargestTeam();
  void MeasureLimits(size_t index);

  const compute::Isa* isa_ = nullptr;
  uint32_t rounds_ = 0;
  AlignedBuffer memory_;  // many times larger than any cache
  size_t next_part_ = 0;  // of it, to be read next
  std::vector<std::unique_ptr<ThreadTeam>> teams_;
  std::vector<Limits> limits_;
  std::vector<KernelResult> results_;
};

// All groups, in the order of the table.
std::vector<KernelGroup> KernelGroups(const compute::Isa& isa);

// The parts of the table, one file each.
std::vector<KernelGroup> LinearGroups(const compute::Isa& isa);
std::vector<KernelGroup> AttentionGroups(const compute::Isa& isa);
std::vector<KernelGroup> RowGroups(const compute::Isa& isa);

}  // namespace kvern::cli
