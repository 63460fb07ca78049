// How much memory this process may still take, so that what cannot fit is refused before it starts.
//
// The least of what the machine and every enclosing control group (v1 or v2) leave. Page cache that
// the kernel can drop counts as available, swap does not. An estimate: other processes go on.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace kvern {

struct MemoryInfo {
  uint64_t total_bytes;      // of the machine, or the control group's limit if that is less
  uint64_t available_bytes;  // ≤ total_bytes
};

// `root` is the folder that holds proc/ and sys/: other than "/" in tests. Errors: kIo, kNotFound,
// kCorrupt, if proc/meminfo cannot be understood; unreadable control groups set no limit.
Result<MemoryInfo> ReadMemoryInfo(const std::string& root = "/");

}  // namespace kvern
