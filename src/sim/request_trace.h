// RequestTrace: when requests came, how long they were, and which text they had in common.
//
// Three kinds of file, told apart by their first line:
//   lengths    CSV, see length_trace.h; nothing is known of the text
//   Mooncake   JSON lines: {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]};
//              requests whose k-th ids are equal have the same text up to the end of block k, of
//              512 tokens
//   sessions   JSON lines, one session each: {"block_size", "requests": [{"t": s, "in", "out",
//              "h": [[first id, count], ...], "think_time": s}, ...]}; ids are the session's own.
//              An entry of type "subagent" has "requests" of its own, that begin when the request
//              before it has ended; the next request waits for both.
// Lines end with LF or CR LF; empty ones are skipped. Compressed files must be unpacked first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::sim {

// Ids first, first + 1, … of `count` blocks that follow each other in a prompt.
struct BlockRun {
  uint64_t first;
  uint32_t count;
};

struct TraceRequest {
  // Since the first request of the trace; of a session's, since the session began.
  uint64_t arrival_us = 0;
  uint32_t prompt_tokens = 0;
  uint32_t new_tokens = 0;
  // Of the prompt from its start; what they leave is nobody else's text. The last may go on after
  // the prompt's end. Equal ids are equal text, in the whole trace.
  std::vector<BlockRun> blocks = {};
  uint32_t session = 0;  // each request has its own where the trace has none
  // Earlier requests that it waits for, and how long it then thinks.
  std::vector<size_t> after = {};
  uint64_t think_us = 0;
};

struct RequestTrace {
  uint32_t block_tokens = 0;  // 0: no request has blocks
  std::vector<TraceRequest> requests;
};

inline constexpr size_t kMaxTraceRequests = 10'000'000;

// Errors: kCorrupt, as "name:line: what is wrong: what to do". An empty trace is one.
Result<RequestTrace> ParseRequestTrace(std::string_view text, const std::string& name);

// Errors: kNotFound and kIo name the file; ParseRequestTrace's.
Result<RequestTrace> ReadRequestTrace(const std::string& path);

}  // namespace kvern::sim
