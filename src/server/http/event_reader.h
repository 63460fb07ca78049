// EventReader: the data of server-sent events, out of bytes that anybody may have sent.
//
// Lines end with LF, CR LF or CR, and come in pieces of any size. Comments and fields but `data`
// are passed over, lines of data of one event are joined by newlines. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kvern::server {

class EventReader {
 public:
  explicit EventReader(size_t max_event_bytes = size_t{4} << 20)
      : max_event_bytes_(max_event_bytes) {}

  // Calls `take` for each event that `bytes` complete. False: an event is too long, and nothing is
  // read any more.
  bool Feed(std::string_view bytes, const std::function<void(std::string_view data)>& take);

 private:
  void TakeLine(const std::function<void(std::string_view data)>& take);

  const size_t max_event_bytes_;
  std::string line_;  // so far
  std::string data_;  // of the event so far, each line with a newline
  bool had_cr_ = false;
  bool is_too_long_ = false;
};

}  // namespace kvern::server
