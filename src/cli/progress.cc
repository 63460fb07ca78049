#include "cli/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace kvern::cli {
namespace {

using std::chrono_literals::operator""ms;
constexpr auto kSilence = 1000ms;
constexpr auto kInterval = 100ms;
constexpr size_t kBarWidth = 30;
constexpr size_t kNarrowBarWidth = 12;  // beside a detail
constexpr size_t kUsualColumns = 80;
constexpr const char* kEraseLine = "\r\x1b[K";

size_t TerminalColumns() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsualColumns;
}

}  // namespace

std::string ProgressLine(const std::string& what, double fraction, std::string_view detail) {
  const size_t width = detail.empty() ? kBarWidth : kNarrowBarWidth;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * static_cast<double>(width));
  std::string bar(width, ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < width) bar[filled] = '>';
  return fmt::format("{}  [{}] {:.0f} %{}{}", what, bar, fraction * 100, detail.empty() ? "" : "  ",
                     detail);
}

Progress::Progress(std::string what)
    : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (is_shown_) fmt::print(stderr, "{}", kEraseLine);
}

void Progress::Update(double fraction, std::string_view detail) {
  if (!is_terminal_) return;
  const auto now = Clock::now();
  if (now - start_ < kSilence || now - drawn_ < kInterval) return;
  drawn_ = now;
  is_shown_ = true;
  // A line that wraps could not be erased.
  fmt::print(stderr, "{}{}", kEraseLine,
             ProgressLine(what_, fraction, detail).substr(0, TerminalColumns() - 1));
}

}  // namespace kvern::cli
