#include "cli/progress.h"

#include <fmt/core.h>
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
constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

std::string ProgressLine(const std::string& what, double fraction) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * kBarWidth);
  std::string bar(kBarWidth, ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < kBarWidth) bar[filled] = '>';
  return fmt::format("{}  [{}] {:.0f} %", what, bar, fraction * 100);
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
  fmt::print(stderr, "{}{}{}{}", kEraseLine, ProgressLine(what_, fraction),
             detail.empty() ? "" : "  ", detail);
}

}  // namespace kvern::cli
