// JSON of requests and replies: from bytes that anybody may have sent, and to bytes that anybody
// can read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvern::server {

// Arrays and objects inside each other, at most. Copying, comparing and printing JSON recurse.
inline constexpr size_t kMaxJsonDepth = 100;

// Errors: kInvalidArgument with the byte at which it stops being JSON, in UTF-8, no deeper than
// that.
Result<nlohmann::ordered_json> ParseJson(std::string_view text);

// One line without a newline. Bytes of strings that are not UTF-8 become U+FFFD.
std::string ToJsonLine(const nlohmann::ordered_json& document);

}  // namespace kvern::server
