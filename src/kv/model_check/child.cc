#include "kv/model_check/child.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace kvern::kv::model_check {
namespace {

constexpr size_t kMaxFindingBytes = 8192;

}  // namespace

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void AllowCpu(rlim_t seconds) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const rlimit limit{static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds,
                     RLIM_INFINITY};
  setrlimit(RLIMIT_CPU, &limit);
}

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

std::string KindOf(const std::string& finding) {
  const std::string line = finding.substr(0, finding.find('\n'));
  std::string kind;
  for (const char c : line.substr(0, line.find(" on address "))) {
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  }
  return kind;
}

}  // namespace kvern::kv::model_check
