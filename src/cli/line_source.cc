#include "cli/line_source.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/check.h"

namespace kvern::cli {
namespace {

constexpr int kExitInterrupted = 130;  // what shells expect of a program that SIGINT ended

std::atomic<bool> interrupt_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void OnInterrupt(int) {
  if (interrupt_requested.exchange(true)) _exit(kExitInterrupted);
}

// Holds back SIGINT, so that it arrives inside ppoll() or not at all.
class ScopedMask {
 public:
  ScopedMask() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &previous_);
  }
  ~ScopedMask() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  ScopedMask(const ScopedMask&) = delete;
  ScopedMask& operator=(const ScopedMask&) = delete;

  const sigset_t* previous() const { return &previous_; }

 private:
  sigset_t previous_;
};

// Returns whether there is input; false when Ctrl-C came first.
bool AwaitInput() {
  const ScopedMask mask;
  while (!interrupt_requested) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (ppoll(&input, 1, nullptr, mask.previous()) > 0) return true;
  }
  interrupt_requested = false;
  return false;
}

}  // namespace

TerminalLines::TerminalLines(std::string prompt)
    : prompt_(std::move(prompt)), is_terminal_(isatty(STDIN_FILENO) == 1) {}

LineInput TerminalLines::Next() {
  if (is_terminal_) {
    fmt::print("{}", prompt_);
    std::fflush(stdout);
  }
  while (true) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      LineInput input{LineInput::Kind::kLine, pending_.substr(0, end)};
      pending_.erase(0, end + 1);
      return input;
    }
    if (has_ended_) {
      if (pending_.empty()) return {LineInput::Kind::kEnd, ""};
      return {LineInput::Kind::kLine, std::exchange(pending_, "")};
    }
    if (!AwaitInput()) {
      pending_.clear();
      return {LineInput::Kind::kInterrupted, ""};
    }
    char buffer[4096];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size > 0) {
      pending_.append(buffer, static_cast<size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      has_ended_ = true;
    }
  }
}

ScopedInterrupts::ScopedInterrupts() {
  interrupt_requested = false;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: waiting for input ends
  CHECK(sigaction(SIGINT, &action, &previous_) == 0);
}

ScopedInterrupts::~ScopedInterrupts() { sigaction(SIGINT, &previous_, nullptr); }

std::atomic<bool>& ScopedInterrupts::requested() { return interrupt_requested; }

}  // namespace kvern::cli
