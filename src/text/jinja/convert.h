// Python's str(), repr(), int() and float().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

// str(value): what {{ value }} prints. Undefined is empty.
Result<std::string> ToStr(Runtime& runtime, const Value& value);
// repr(value). Objects without a stable repr print their type in angle brackets.
Result<std::string> ToRepr(Runtime& runtime, const Value& value);

// The shortest digits that read back as `value`, written as Python does: 1.0, 1e+16, inf, nan.
std::string FloatRepr(double value);

// int(text, base) with Python's spaces, signs, underscores and prefixes; nothing when malformed or
// out of 64 bits. `base` is 0 or 2 to 36.
std::optional<int64_t> ParseInt(std::string_view text, int base);
// float(text).
std::optional<double> ParseFloat(std::string_view text);
// int(value) of a float: truncates; nothing when not finite or out of 64 bits.
std::optional<int64_t> Truncate(double value);

// An index or count argument: an int or bool, else an error naming `what`.
Result<int64_t> ToIndex(const Value& value, std::string_view what);

}  // namespace kvern::text::jinja
