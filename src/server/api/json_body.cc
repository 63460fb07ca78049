#include "server/api/json_body.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace kvern::server {
namespace {

// Where text that may be JSON is nested too deeply.
std::optional<size_t> FindTooDeep(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<nlohmann::ordered_json> ParseJson(std::string_view text) {
  if (const auto offset = FindTooDeep(text)) {
    return Errorf(ErrorCode::kInvalidArgument, "JSON is nested more than {} deep at byte {}",
                  kMaxJsonDepth, *offset);
  }
  try {
    return nlohmann::ordered_json::parse(text.begin(), text.end());
  } catch (const nlohmann::ordered_json::parse_error& error) {
    return Errorf(ErrorCode::kInvalidArgument, "not JSON from byte {} on", error.byte);
  } catch (const nlohmann::ordered_json::exception&) {
    return Errorf(ErrorCode::kInvalidArgument, "JSON has a number that no double can hold");
  }
}

std::string ToJsonLine(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kvern::server
