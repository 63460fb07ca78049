// ServerLog: what a server says of what it does, a line each, for people or as JSON. Any thread.
//
// Nothing of a prompt or an answer is ever in it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvern::server {

struct LogField {
  std::string_view name;
  std::variant<std::string, int64_t, double> value;
};

class ServerLog {
 public:
  // `out` must outlive it.
  explicit ServerLog(std::FILE* out, bool is_json) : out_(out), is_json_(is_json) {}

  // "kvern: text", or {"time": …, "event": "message", "text": …}.
  void Say(std::string_view text);
  // "kvern: event name=value …", or {"time": …, "event": …, "name": value, …}.
  void Write(std::string_view event, const std::vector<LogField>& fields);

 private:
  void WriteLine(std::string line);

  std::FILE* const out_;
  const bool is_json_;
  std::mutex mutex_;
};

}  // namespace kvern::server
