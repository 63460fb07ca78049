#include "cli/bench_memory.h"

#include <fstream>
#include <limits>
#include <string>

namespace kvern::cli {

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

uint64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  uint64_t kibibytes = 0;
  for (std::string key; status >> key;) {
    if (key == "VmHWM:") {
      status >> kibibytes;
      break;
    }
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kibibytes * 1024;
}

}  // namespace kvern::cli
