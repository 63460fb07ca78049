#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/convert.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

constexpr int kMaxPrecision = 1000;

class SpecReader {
 public:
  explicit SpecReader(std::string_view spec) : text_(Decode(spec)) {}

  Result<FormatSpec> Read() {
    FormatSpec spec;
    ReadAlign(spec);
    if (const char sign = TakeAny("+- ")) spec.sign = sign;
    spec.is_alternate = TakeAny("#") != '\0';
    if (TakeAny("0")) {
      if (spec.align == '\0') {
        spec.fill = '0';
        spec.align = '=';
      }
    }
    KVERN_ASSIGN_OR_RETURN(const std::optional<int64_t> width, ReadNumber());
    if (width) spec.width = static_cast<size_t>(*width);
    spec.grouping = TakeAny(",_");
    if (TakeAny(".")) {
      KVERN_ASSIGN_OR_RETURN(const std::optional<int64_t> precision, ReadNumber());
      if (!precision) return TemplateError("format specifier missing precision");
      if (*precision > kMaxPrecision) return TemplateError("precision too big");
      spec.precision = static_cast<int>(*precision);
    }
    if (at_ + 1 == text_.size() && text_[at_] < 0x80) spec.type = static_cast<char>(text_[at_++]);
    if (at_ != text_.size()) return TemplateError("invalid format specifier");
    return spec;
  }

 private:
  static bool IsAlign(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  void ReadAlign(FormatSpec& spec) {
    if (text_.size() >= 2 && IsAlign(text_[1])) {
      spec.fill = text_[0];
      spec.align = static_cast<char>(text_[1]);
      at_ = 2;
    } else if (!text_.empty() && IsAlign(text_[0])) {
      spec.align = static_cast<char>(text_[0]);
      at_ = 1;
    }
  }

  char TakeAny(std::string_view choices) {
    if (at_ >= text_.size() || text_[at_] >= 0x80) return '\0';
    const char c = static_cast<char>(text_[at_]);
    if (choices.find(c) == std::string_view::npos) return '\0';
    ++at_;
    return c;
  }

  Result<std::optional<int64_t>> ReadNumber() {
    std::optional<int64_t> number;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      number = number.value_or(0) * 10 + static_cast<int64_t>(text_[at_++] - '0');
      if (*number > INT32_MAX) return TemplateError("too many decimal digits in format string");
    }
    return number;
  }

  std::u32string text_;
  size_t at_ = 0;
};

std::string Group(const std::string& digits, char separator, size_t group) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

Result<std::string> FormatText(const FormatSpec& spec, const std::string& text) {
  if (spec.type != '\0' && spec.type != 's') {
    return TemplateError("unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (spec.align == '=' || spec.sign != '-' || spec.is_alternate || spec.grouping != '\0') {
    return TemplateError("this format specifier is not allowed for strings");
  }
  if (!spec.precision) return PadText(spec, text, '<');
  const std::u32string decoded = Decode(text);
  return PadText(spec, Encode(decoded.substr(0, static_cast<size_t>(*spec.precision))), '<');
}

// Without a type, a float prints like repr, or like g that keeps one digit after the point.
std::string FormatPlainFloat(double magnitude, const std::optional<int>& precision) {
  if (!precision || !std::isfinite(magnitude)) return FloatRepr(magnitude);
  const int digits = std::max(*precision, 1);
  char buffer[kMaxPrecision + 32];
  std::snprintf(buffer, sizeof(buffer), "%.*e", digits - 1, magnitude);
  const int exponent =
      std::atoi(std::string_view(buffer).substr(std::string_view(buffer).find('e') + 1).data());
  std::string text = FormatMagnitude(magnitude, 'g', digits, false);
  if (exponent < -4 || exponent >= digits - 1) {
    if (text.find('e') != std::string::npos) return text;
    std::string mantissa(buffer, std::string_view(buffer).find('e'));
    if (mantissa.find('.') != std::string::npos) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      if (mantissa.back() == '.') mantissa.pop_back();
    }
    return mantissa +
           std::string(std::string_view(buffer).substr(std::string_view(buffer).find('e')));
  }
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

Result<std::string> FormatFloat(const FormatSpec& spec, double value) {
  const double magnitude = std::fabs(value);
  std::string digits;
  switch (spec.type) {
    case '\0':
      digits = FormatPlainFloat(magnitude, spec.precision);
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
      digits = FormatMagnitude(magnitude, spec.type, spec.precision.value_or(6), spec.is_alternate);
      break;
    default:
      return TemplateError("unknown format code '{}' for object of type 'float'", spec.type);
  }
  if (spec.grouping != '\0' && std::isfinite(value)) digits = Group(digits, spec.grouping, 3);
  return PadNumber(spec, std::signbit(value) && !std::isnan(value), "", digits);
}

Result<std::string> FormatInt(const FormatSpec& spec, int64_t value) {
  if (spec.precision) return TemplateError("precision not allowed in integer format specifier");
  int base = 10;
  std::string prefix;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'x':
    case 'X':
      base = 16;
      prefix = spec.type == 'x' ? "0x" : "0X";
      break;
    case 'c': {
      if (value < 0 || value > 0x10FFFF) return TemplateError("%c arg not in range(0x110000)");
      std::string character;
      AppendUtf8(static_cast<char32_t>(value), character);
      return PadText(spec, character, '<');
    }
    default:
      return TemplateError("unknown format code '{}' for object of type 'int'", spec.type);
  }
  if (!spec.is_alternate) prefix.clear();
  std::string digits = FormatMagnitude(value, base, spec.type == 'X');
  if (spec.grouping != '\0') digits = Group(digits, spec.grouping, base == 10 ? 3 : 4);
  return PadNumber(spec, value < 0, prefix, digits);
}

}  // namespace

std::string FormatMagnitude(double value, char type, int precision, bool is_alternate) {
  const double magnitude = std::fabs(type == '%' ? value * 100 : value);
  const bool is_upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(magnitude)) {
    std::string text = std::isnan(magnitude) ? "nan" : "inf";
    if (is_upper) text = ToUpper(text);
    return type == '%' ? text + "%" : text;
  }
  const char conversion = type == '%' ? 'f' : type;
  const std::string pattern = std::string(is_alternate ? "%#.*" : "%.*") + conversion;
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, magnitude);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), pattern.c_str(), precision, magnitude);
  text.pop_back();
  return type == '%' ? text + "%" : text;
}

std::string FormatMagnitude(int64_t value, int base, bool is_upper) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char* const alphabet = is_upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.push_back(alphabet[magnitude % static_cast<uint64_t>(base)]);
    magnitude /= static_cast<uint64_t>(base);
  } while (magnitude > 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string PadNumber(const FormatSpec& spec, bool is_negative, std::string prefix,
                      std::string digits) {
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.align != '=') return PadText(spec, sign + prefix + digits, '>');
  std::string zeros;
  const size_t length = sign.size() + prefix.size() + digits.size();
  size_t padding = spec.width > length ? spec.width - length : 0;
  if (spec.fill == '0' && spec.grouping != '\0' && padding > 0) {
    // Zeros that pad a grouped number are grouped too, and never begin with a separator.
    std::string bare;
    for (const char c : digits) {
      if (c != spec.grouping) bare.push_back(c);
    }
    const size_t group = prefix.empty() ? 3 : 4;
    std::string grouped = digits;
    while (sign.size() + prefix.size() + grouped.size() < spec.width) {
      bare.insert(bare.begin(), '0');
      grouped = Group(bare, spec.grouping, group);
    }
    return sign + prefix + grouped;
  }
  for (; padding > 0; --padding) AppendUtf8(spec.fill, zeros);
  return sign + prefix + zeros + digits;
}

std::string PadText(const FormatSpec& spec, std::string text, char default_align) {
  const size_t length = CountCodePoints(text);
  if (length >= spec.width) return text;
  const size_t padding = spec.width - length;
  const char align = spec.align == '\0' || spec.align == '=' ? default_align : spec.align;
  const size_t left = align == '<' ? 0 : align == '>' ? padding : padding / 2;
  std::string out;
  for (size_t i = 0; i < left; ++i) AppendUtf8(spec.fill, out);
  out += text;
  for (size_t i = left; i < padding; ++i) AppendUtf8(spec.fill, out);
  return out;
}

Status CheckWidth(Runtime& runtime, size_t width) {
  return runtime.Charge(width * sizeof(char32_t));
}

Result<std::string> FormatValue(Runtime& runtime, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return ToStr(runtime, value);
  KVERN_ASSIGN_OR_RETURN(FormatSpec spec, SpecReader(spec_text).Read());
  KVERN_RETURN_IF_ERROR(CheckWidth(runtime, spec.width));
  if (value.is_string()) {
    if (spec.align == '=' && spec.fill == '0') spec.align = '<';
    return FormatText(spec, value.str());
  }
  if (value.is_float()) return FormatFloat(spec, value.as_float());
  if (value.is_integral()) {
    constexpr std::string_view kFloatTypes = "eEfFgG%";
    if (spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos) {
      return FormatFloat(spec, value.as_float());
    }
    return FormatInt(spec, value.as_int());
  }
  return TypeError("unsupported format string passed to {}.__format__", value.type_name());
}

}  // namespace kvern::text::jinja
