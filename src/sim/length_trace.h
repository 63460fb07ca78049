// LengthTrace: when requests arrive and how many tokens they have, and nothing else about them.
//
// The file is CSV with one of two headers:
//   arrival_ms,context_tokens,generated_tokens      milliseconds since any origin
//   TIMESTAMP,ContextTokens,GeneratedTokens         the Azure LLM inference traces; a time such as
//                                                   2023-11-16 18:15:46.6805900, "+00:00" allowed
// Rows are in order of arrival. Lines end with LF or CR LF; empty ones are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::sim {

struct LengthRequest {
  uint64_t arrival_ms = 0;  // since the first request of the trace
  uint32_t context_tokens = 0;
  uint32_t generated_tokens = 0;

  uint32_t num_tokens() const { return context_tokens + generated_tokens; }
};

using LengthTrace = std::vector<LengthRequest>;

// Of one row. No model has such a context, and sums of two still fit.
inline constexpr uint32_t kMaxTraceTokens = 1u << 28;

// Errors: kCorrupt, as "name:line: what is wrong: what to do". An empty trace is one.
Result<LengthTrace> ParseLengthTrace(std::string_view text, const std::string& name);

// Errors: kNotFound and kIo name the file; ParseLengthTrace's.
Result<LengthTrace> ReadLengthTrace(const std::string& path);

// Lengths spread evenly over powers of two (context 32 to 8191, generated 8 to 1023), 180 ms apart
// on average. The same on every machine for the same arguments.
LengthTrace MakeSyntheticTrace(size_t num_requests, uint64_t seed);

// Tokens of the longest request; 0 for an empty trace.
uint32_t LongestRequest(const LengthTrace& trace);

}  // namespace kvern::sim
