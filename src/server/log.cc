#include "server/log.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/clock.h"
#include "server/api/json_body.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const LogField& field) {
  return std::visit([](const auto& value) { return Json(value); }, field.value);
}

// One word: what a client sent does not end a line, nor look like another field.
std::string ToWord(const LogField& field) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          std::string word = value;
          std::ranges::replace_if(
              word, [](char c) { return c <= ' ' || c > '~'; }, '?');
          return word;
        } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
          return fmt::format("{:.1f}", value);
        } else {
          return fmt::format("{}", value);
        }
      },
      field.value);
}

}  // namespace

void ServerLog::Say(std::string_view text) {
  if (is_json_) return Write("message", {{"text", std::string(text)}});
  WriteLine(fmt::format("kvern: {}\n", text));
}

void ServerLog::Write(std::string_view event, const std::vector<LogField>& fields) {
  if (is_json_) {
    Json line = {{"time", UnixNow()}, {"event", event}};
    for (const LogField& field : fields) line[std::string(field.name)] = ToJson(field);
    return WriteLine(ToJsonLine(line) + "\n");
  }
  std::string line = fmt::format("kvern: {}", event);
  for (const LogField& field : fields) line += fmt::format(" {}={}", field.name, ToWord(field));
  WriteLine(line + "\n");
}

void ServerLog::WriteLine(std::string line) {
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fflush(out_);
}

}  // namespace kvern::server
