// The most memory that this process was resident with, for benchmarks to state beside a speed.
#pragma once

#include <cstdint>

namespace kvern::cli {

// Forgets earlier peaks where the operating system lets us; elsewhere the peak is the process's.
void ResetPeakMemory();

// Bytes since then. 0 where the system does not tell.
uint64_t PeakMemoryBytes();

}  // namespace kvern::cli
