// Reads any bytes as a length trace; what is accepted must keep what the header promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sim/length_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = kvern::sim::ParseLengthTrace(
      std::string_view(reinterpret_cast<const char*>(data), size), "input");
  if (!trace.ok()) {
    CHECK(trace.error().message.find('\n') == std::string::npos);
    return 0;
  }
  CHECK(!trace->empty() && trace->front().arrival_ms == 0);
  const uint32_t longest = kvern::sim::LongestRequest(*trace);
  uint64_t last_ms = 0;
  for (const kvern::sim::LengthRequest& request : *trace) {
    CHECK(request.arrival_ms >= last_ms);
    CHECK(request.context_tokens <= kvern::sim::kMaxTraceTokens);
    CHECK(request.num_tokens() <= longest);
    last_ms = request.arrival_ms;
  }
  return 0;
}
