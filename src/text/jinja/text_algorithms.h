// Python's str algorithms on UTF-8 text: split, strip, replace, lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace kvern::text::jinja {

// At most `limit` splits, from the right where asked; all when negative.
std::vector<std::string> SplitSpace(std::string_view text, int64_t limit, bool from_right);
// REQUIRES: separator is not empty.
std::vector<std::string> SplitOn(std::string_view text, std::string_view separator, int64_t limit,
                                 bool from_right);

// The lines of `text`, with their ends where asked.
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);

enum class StripSide { kLeft = 1, kRight = 2, kBoth = 3 };
// Removes characters of the set, or Python's white space when there is none.
std::string Strip(std::string_view text, std::optional<std::string_view> chars, StripSide side);

// At most `count` times; all when negative.
Result<std::string> ReplaceAll(Runtime& runtime, std::string_view text, std::string_view old,
                               std::string_view replacement, int64_t count);

}  // namespace kvern::text::jinja
