// ReplyStats: what a reply took, and the closing line that says so.
#pragma once

#include <cstdint>
#include <string>

#include "base/byte_text.h"

namespace kvern::cli {

struct ReplyStats {
  uint64_t prompt_tokens = 0;  // of the whole prompt, history included
  uint64_t cached_tokens = 0;  // of these, how many the KV cache still held
  uint64_t reply_tokens = 0;
  double prefill_seconds = 0;  // until the first token of the reply
  double decode_seconds = 0;   // for the other tokens
  uint64_t kv_bytes = 0;       // held at the end of the reply

  // Tokens computed per second of each phase; 0 where nothing was computed.
  double prefill_rate() const;
  double decode_rate() const;
};

// Adds counts and times; kv_bytes is the later one's.
ReplyStats operator+(const ReplyStats& earlier, const ReplyStats& later);

// "prefill 31 tokens (12 cached), 310.2 t/s; decode 64 tokens, 121.7 t/s; KV cache 2.1 MiB".
std::string FormatStats(const ReplyStats& stats);

}  // namespace kvern::cli
