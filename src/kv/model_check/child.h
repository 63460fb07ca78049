// What model checkers need because a finding aborts: cases run in child processes, and what fails
// is made smaller and run again.
//
// One thread: the process forks.
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"

namespace kvern::kv::model_check {

inline constexpr rlim_t kMaxCaseSeconds = 30;  // of CPU: then it hangs

// A plain object in memory that a child shares with its parent.
template <typename T>
class SharedWithChild {
 public:
  SharedWithChild()
      : memory_(
            mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    CHECK(memory_ != MAP_FAILED);
    new (memory_) T;
  }
  ~SharedWithChild() { munmap(memory_, sizeof(T)); }
  SharedWithChild(const SharedWithChild&) = delete;
  SharedWithChild& operator=(const SharedWithChild&) = delete;

  T& operator*() const { return *static_cast<T*>(memory_); }
  T* operator->() const { return static_cast<T*>(memory_); }

 private:
  void* const memory_;
};

double SecondsSince(std::chrono::steady_clock::time_point start);

// From now on so much more CPU time, or the process dies.
void AllowCpu(rlim_t seconds);

// Does `work` in a child. What it printed to stderr, if it did not end well.
std::optional<std::string> FindingOfChild(const std::function<void()>& work);

// What two findings of one kind share: the first line without numbers and places.
std::string KindOf(const std::string& finding);

// Takes out runs of operations, long ones first, as long as what is left fails.
template <typename Operation>
void RemoveRuns(std::vector<Operation>& operations,
                const std::function<bool(std::span<const Operation>)>& fails) {
  for (size_t run = std::max<size_t>(operations.size() / 2, 1); run > 0; run /= 2) {
    bool has_shrunk = true;
    while (has_shrunk) {
      has_shrunk = false;
      for (size_t end = operations.size(); end > 0; end -= std::min(end, run)) {
        const size_t begin = end - std::min(end, run);
        std::vector<Operation> fewer = operations;
        fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(begin),
                    fewer.begin() + static_cast<ptrdiff_t>(end));
        if (!fails(fewer)) continue;
        operations = std::move(fewer);
        has_shrunk = true;
      }
    }
  }
}

// Makes the numbers of operations {action, object, count, random} small.
template <typename Operation>
void SimplifyEach(std::vector<Operation>& operations,
                  const std::function<bool(std::span<const Operation>)>& fails) {
  const auto change = [&](size_t i, const std::function<void(Operation&)>& simplify) {
    std::vector<Operation> simpler = operations;
    simplify(simpler[i]);
    if (fails(simpler)) operations = std::move(simpler);
  };
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].object != 0) change(i, [](Operation& o) { o.object = 0; });
    for (const uint32_t count : {1, 0}) {
      if (operations[i].count > count) change(i, [&](Operation& o) { o.count = count; });
    }
    if (operations[i].random != 0) change(i, [](Operation& o) { o.random = 0; });
  }
}

// A short list, taken from `operations`, that fails with the same kind of finding. Stops early when
// `seconds` have passed. REQUIRES: `operations` fail with `finding`, which `finding_of` would say.
template <typename Operation>
std::vector<Operation> ShrinkAlike(
    std::vector<Operation> operations, const std::string& finding, double seconds,
    const std::function<std::optional<std::string>(std::span<const Operation>)>& finding_of) {
  const auto start = std::chrono::steady_clock::now();
  const std::string kind = KindOf(finding);
  const std::function<bool(std::span<const Operation>)> fails = [&](auto some) {
    if (SecondsSince(start) >= seconds) return false;
    const auto found = finding_of(some);
    return found && KindOf(*found) == kind;
  };
  RemoveRuns(operations, fails);
  SimplifyEach(operations, fails);
  RemoveRuns(operations, fails);
  return operations;
}

// A hunt ends when the first limit is reached.
struct HuntLimits {
  double seconds = 1;
  uint64_t num_steps = UINT64_MAX;
};

// What a hunt found: the last case that it ran.
template <typename Operation>
struct FailedCase {
  uint64_t seed;
  std::string finding;
  std::vector<Operation> operations;  // up to the one that failed
};

}  // namespace kvern::kv::model_check
