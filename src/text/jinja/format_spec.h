// Python's format(value, spec), and the parts that it shares with the % operator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

// [[fill]align][sign]["z"]["#"]["0"][width][grouping]["." precision][type]
struct FormatSpec {
  char32_t fill = ' ';
  char align = '\0';  // < > ^ =, or none given
  char sign = '-';    // - + space
  bool is_alternate = false;
  size_t width = 0;
  char grouping = '\0';  // , or _
  std::optional<int> precision;
  char type = '\0';
};

// format(value, spec).
Result<std::string> FormatValue(Runtime& runtime, const Value& value, std::string_view spec);

// The digits of |value| under type e, f, g or % (any case), without sign.
std::string FormatMagnitude(double value, char type, int precision, bool is_alternate);
// The digits of |value| in base 2, 8, 10 or 16.
std::string FormatMagnitude(int64_t value, int base, bool is_upper);
// Adds sign and padding to a number's digits (`prefix` like 0x) as the spec asks.
std::string PadNumber(const FormatSpec& spec, bool is_negative, std::string prefix,
                      std::string digits);
// Pads text to the spec's width, in code points.
std::string PadText(const FormatSpec& spec, std::string text, char default_align);
// An error when the width is beyond the limits.
Status CheckWidth(Runtime& runtime, size_t width);

}  // namespace kvern::text::jinja
