#include "kv/model_check/runner.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>

#include "base/check.h"

namespace kvern::kv::model_check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr rlim_t kMaxCaseSeconds = 30;  // of CPU: then it hangs
constexpr size_t kMaxFindingBytes = 8192;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a child has got to, in memory that it shares with its parent.
struct Progress {
  uint64_t seed = 0;
  uint64_t num_cases = 0;
  uint64_t num_steps = 0;          // of all cases
  uint64_t num_steps_of_case = 0;  // begun
};

class SharedProgress {
 public:
  SharedProgress()
      : memory_(mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) {
    CHECK(memory_ != MAP_FAILED);
    new (memory_) Progress;
  }
  ~SharedProgress() { munmap(memory_, sizeof(Progress)); }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  Progress& operator*() const { return *static_cast<Progress*>(memory_); }
  Progress* operator->() const { return static_cast<Progress*>(memory_); }

 private:
  void* const memory_;
};

// From now on so much more CPU time, or the process dies.
void AllowCpu(rlim_t seconds) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const rlimit limit{static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds,
                     RLIM_INFINITY};
  setrlimit(RLIMIT_CPU, &limit);
}

// Does `work` in a child. What it printed to stderr, if it did not end well.
std::optional<std::string> FindingOfChild(const std::function<void()>& work) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  std::fflush(stdout);
  std::fflush(stderr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    AllowCpu(kMaxCaseSeconds);
    work();
    std::exit(0);  // not _exit(): a sanitizer looks for leaks
  }
  close(ends[1]);
  std::string finding;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    finding.append(buffer, static_cast<size_t>(n));
    // The end is what tells.
    if (finding.size() > 2 * kMaxFindingBytes) finding.erase(0, finding.size() - kMaxFindingBytes);
  }
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (finding.empty()) {
    finding = WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU
                  ? "it does not end"
                  : fmt::format("died with status {:#x}", status);
  }
  return finding;
}

// What two findings of one kind share: the first line without numbers and places.
std::string KindOf(const std::string& finding) {
  const std::string line = finding.substr(0, finding.find('\n'));
  std::string kind;
  for (const char c : line.substr(0, line.find(" on address "))) {
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  }
  return kind;
}

bool FailsAlike(const CacheSetup& setup, std::span<const Operation> operations,
                const CheckerOptions& options, const std::string& kind) {
  const auto finding = FindingOf(setup, operations, options);
  return finding && KindOf(*finding) == kind;
}

// Takes out runs of operations, long ones first.
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

// Makes numbers small.
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

void RunCaseWith(const CacheSetup& setup, std::span<const Operation> operations,
                 const CheckerOptions& options, Progress& progress) {
  Checker checker(setup, options);
  progress.num_steps_of_case = 0;
  for (const Operation& operation : operations) {
    ++progress.num_steps_of_case;
    checker.Do(operation);
  }
  checker.Finish();
  progress.num_steps += operations.size();
  ++progress.num_cases;
}

}  // namespace

void RunCase(const CacheSetup& setup, std::span<const Operation> operations,
             const CheckerOptions& options) {
  Progress progress;
  RunCaseWith(setup, operations, options, progress);
}

std::optional<std::string> FindingOf(const CacheSetup& setup, std::span<const Operation> operations,
                                     const CheckerOptions& options) {
  return FindingOfChild([&] { RunCase(setup, operations, options); });
}

std::vector<Operation> Shrink(const CacheSetup& setup, std::vector<Operation> operations,
                              const CheckerOptions& options, const std::string& finding,
                              double seconds) {
  const auto start = Clock::now();
  const std::string kind = KindOf(finding);
  const auto fails = [&](std::span<const Operation> some) {
    return SecondsSince(start) < seconds && FailsAlike(setup, some, options, kind);
  };
  RemoveRuns(operations, fails);
  SimplifyEach(operations, fails);
  RemoveRuns(operations, fails);
  return operations;
}

HuntResult Hunt(const CacheSetup& setup, uint64_t first_seed, const HuntLimits& limits,
                const CheckerOptions& options) {
  const auto start = Clock::now();
  SharedProgress progress;
  const auto finding = FindingOfChild([&] {
    for (uint64_t seed = first_seed;
         SecondsSince(start) < limits.seconds && progress->num_steps < limits.num_steps; ++seed) {
      progress->seed = seed;
      AllowCpu(kMaxCaseSeconds);
      RunCaseWith(setup, MakeOperations(setup, seed, kStepsPerCase), options, *progress);
    }
  });
  HuntResult result;
  result.num_cases = progress->num_cases;
  result.num_steps = progress->num_steps;
  if (finding) {
    auto operations = MakeOperations(setup, progress->seed, kStepsPerCase);
    operations.resize(progress->num_steps_of_case);
    result.failure = HuntResult::Failure{progress->seed, *finding, std::move(operations)};
  }
  result.seconds = SecondsSince(start);
  return result;
}

}  // namespace kvern::kv::model_check
