#include "server/http/event_reader.h"

#include <utility>

namespace kvern::server {
namespace {

constexpr std::string_view kDataField = "data";

}  // namespace

bool EventReader::Feed(std::string_view bytes,
                       const std::function<void(std::string_view data)>& take) {
  while (!bytes.empty() && !is_too_long_) {
    if (std::exchange(had_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + data_.size() + piece.size() > max_event_bytes_) {
      is_too_long_ = true;
      break;
    }
    line_ += piece;
    if (end == bytes.npos) break;
    had_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    TakeLine(take);
  }
  return !is_too_long_;
}

void EventReader::TakeLine(const std::function<void(std::string_view data)>& take) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const std::string data = std::exchange(data_, {});
    if (!data.empty()) take(std::string_view(data).substr(0, data.size() - 1));
    return;
  }
  const std::string_view field = std::string_view(line).substr(0, line.find(':'));
  if (field != kDataField) return;
  std::string_view value = std::string_view(line).substr(field.size());
  if (value.starts_with(':')) value.remove_prefix(1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  data_ += value;
  data_ += '\n';
}

}  // namespace kvern::server
