// LineSource: where an interactive command gets its lines, and how Ctrl-C reaches it.
#pragma once

#include <atomic>
#include <csignal>
#include <string>

namespace kvern::cli {

struct LineInput {
  enum class Kind {
    kLine,
    kEnd,          // end of input
    kInterrupted,  // Ctrl-C while waiting
  };
  Kind kind;
  std::string line;  // kLine: without its newline
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  virtual LineInput Next() = 0;
};

// Standard input. Shows `prompt` before each line where it is a terminal.
class TerminalLines final : public LineSource {
 public:
  explicit TerminalLines(std::string prompt);
  LineInput Next() override;

 private:
  const std::string prompt_;
  const bool is_terminal_;
  std::string pending_;  // read, and not yet given out
  bool has_ended_ = false;
};

// While it lives, Ctrl-C sets requested() instead of ending the process; a second Ctrl-C before the
// flag was cleared ends the process at once. One at a time.
class ScopedInterrupts {
 public:
  ScopedInterrupts();
  ~ScopedInterrupts();
  ScopedInterrupts(const ScopedInterrupts&) = delete;
  ScopedInterrupts& operator=(const ScopedInterrupts&) = delete;

  static std::atomic<bool>& requested();

 private:
  struct sigaction previous_;
};

}  // namespace kvern::cli
