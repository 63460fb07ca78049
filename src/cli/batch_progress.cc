#include "cli/batch_progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvern::cli {
namespace {

constexpr int64_t kLineIntervalUs = 10'000'000;

double Seconds(int64_t us) { return static_cast<double>(us) / 1e6; }

double Rate(size_t count, int64_t us) {
  return us > 0 ? static_cast<double>(count) / Seconds(us) : 0.0;
}

double Percent(size_t part, size_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// "0:07", "12:30", "1:02:03".
std::string Duration(double seconds) {
  const auto total = static_cast<int64_t>(seconds + 0.5);
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

size_t NumAnswered(const BatchFigures& figures) { return figures.num_kept + figures.num_done; }

}  // namespace

BatchProgress::BatchProgress(const Clock& clock)
    : clock_(clock),
      start_us_(clock.now_us()),
      shown_us_(start_us_),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      bar_("Batch") {}

void BatchProgress::Show(const BatchFigures& figures) {
  const int64_t now_us = clock_.now_us();
  const std::string status = FormatBatchStatus(figures, now_us - start_us_);
  if (is_terminal_) {
    const size_t whole = std::max<size_t>(figures.num_requests, 1);
    bar_.Update(static_cast<double>(NumAnswered(figures)) / static_cast<double>(whole), status);
  } else if (now_us - shown_us_ >= kLineIntervalUs) {
    shown_us_ = now_us;
    fmt::print(stderr, "{}\n", status);
  }
}

std::string FormatBatchStatus(const BatchFigures& figures, int64_t elapsed_us) {
  std::string text =
      fmt::format("{}/{} requests, {:.1f} t/s, {:.0f} % reused", NumAnswered(figures),
                  figures.num_requests, Rate(figures.generated_tokens, elapsed_us),
                  Percent(figures.prompts.hit(), figures.prompt_tokens));
  const size_t num_left = figures.num_requests - NumAnswered(figures);
  if (figures.num_done == 0) return text;
  const double per_request = Seconds(elapsed_us) / static_cast<double>(figures.num_done);
  return text + fmt::format(", {} left", Duration(per_request * static_cast<double>(num_left)));
}

std::string FormatBatchSummary(const BatchFigures& figures, int64_t elapsed_us) {
  const kv::PromptSplit& split = figures.prompts;
  std::string text = fmt::format("requests   {} answered in {}, {} failed", figures.num_done,
                                 Duration(Seconds(elapsed_us)), figures.num_failed);
  if (figures.num_kept > 0) text += fmt::format("; {} were answered before", figures.num_kept);
  if (figures.num_dropped_bytes > 0) {
    text += fmt::format("; an incomplete line of {} bytes was dropped", figures.num_dropped_bytes);
  }
  text += fmt::format(
      "\nprompts    {} tokens: {} prefilled, {} reused ({:.1f} %): {} from memory, {} in part, {} "
      "while others computed them, {} from tiers",
      figures.prompt_tokens, figures.prefilled_tokens, split.hit(),
      Percent(split.hit(), figures.prompt_tokens), split.ram, split.partial, split.in_flight,
      split.tier);
  text += fmt::format("\ngenerated  {} tokens, {:.1f} t/s\n", figures.generated_tokens,
                      Rate(figures.generated_tokens, elapsed_us));
  return text;
}

}  // namespace kvern::cli
