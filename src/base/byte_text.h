// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>

namespace kvern {

// "512 B", "22.5 KiB", "1.2 GiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace kvern
