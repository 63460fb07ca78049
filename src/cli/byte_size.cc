#include "cli/byte_size.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace kvern::cli {
namespace {

constexpr std::pair<std::string_view, int> kUnits[] = {
    {"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40},
};

}  // namespace

Result<uint64_t> ParseByteSize(const char* flag, const std::string& text) {
  uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const std::string_view unit(end, static_cast<size_t>(last - end));
  for (const auto& [name, shift] : kUnits) {
    if (error == std::errc() && unit == name && value <= UINT64_MAX >> shift) return value << shift;
  }
  return Errorf(
      ErrorCode::kInvalidArgument,
      "{}: '{}' is not a size: give a whole number of B, KiB, MiB, GiB or TiB, like 24GiB", flag,
      text);
}

}  // namespace kvern::cli
