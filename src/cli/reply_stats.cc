#include "cli/reply_stats.h"

#include <fmt/core.h>

namespace kvern::cli {
namespace {

double Rate(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

double ReplyStats::prefill_rate() const {
  return Rate(prompt_tokens - cached_tokens, prefill_seconds);
}

double ReplyStats::decode_rate() const {
  // The first token comes out of the prefill.
  return Rate(reply_tokens > 0 ? reply_tokens - 1 : 0, decode_seconds);
}

ReplyStats operator+(const ReplyStats& earlier, const ReplyStats& later) {
  return {.prompt_tokens = earlier.prompt_tokens + later.prompt_tokens,
          .cached_tokens = earlier.cached_tokens + later.cached_tokens,
          .reply_tokens = earlier.reply_tokens + later.reply_tokens,
          .prefill_seconds = earlier.prefill_seconds + later.prefill_seconds,
          .decode_seconds = earlier.decode_seconds + later.decode_seconds,
          .kv_bytes = later.kv_bytes};
}

std::string FormatStats(const ReplyStats& stats) {
  const std::string cached =
      stats.cached_tokens > 0 ? fmt::format(" ({} cached)", stats.cached_tokens) : "";
  return fmt::format("prefill {} tokens{}, {:.1f} t/s; decode {} tokens, {:.1f} t/s; KV cache {}",
                     stats.prompt_tokens, cached, stats.prefill_rate(), stats.reply_tokens,
                     stats.decode_rate(), FormatBytes(stats.kv_bytes));
}

}  // namespace kvern::cli
