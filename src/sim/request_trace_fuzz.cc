// Reads any bytes as a request trace; what is accepted must keep what the header promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sim/request_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = kvern::sim::ParseRequestTrace(
      std::string_view(reinterpret_cast<const char*>(data), size), "input");
  if (!trace.ok()) {
    CHECK(trace.error().message.find('\n') == std::string::npos);
    return 0;
  }
  CHECK(!trace->requests.empty());
  for (size_t i = 0; i < trace->requests.size(); ++i) {
    const kvern::sim::TraceRequest& request = trace->requests[i];
    uint64_t num_blocks = 0;
    for (const kvern::sim::BlockRun& run : request.blocks) num_blocks += run.count;
    CHECK(num_blocks == 0 ||
          (num_blocks - 1) * trace->block_tokens < uint64_t{request.prompt_tokens});
    for (const size_t earlier : request.after) CHECK(earlier < i);
  }
  return 0;
}
