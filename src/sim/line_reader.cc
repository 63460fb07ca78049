#include "sim/line_reader.h"

#include <algorithm>

namespace kvern::sim {

std::optional<std::string_view> LineReader::Next() {
  while (!rest_.empty()) {
    ++line_number_;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) return line;
  }
  return std::nullopt;
}

Error LineReader::Wrong(const std::string& what) const {
  return Errorf(ErrorCode::kCorrupt, "{}:{}: {}", name_, std::max<size_t>(line_number_, 1), what);
}

}  // namespace kvern::sim
