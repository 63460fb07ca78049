#include "text/jinja/convert.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

void AppendCharRepr(char32_t c, char32_t quote, std::string& out) {
  if (c == quote || c == '\\') {
    out.push_back('\\');
    out.push_back(static_cast<char>(c));
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (Is(c, kPrintable)) {
    AppendUtf8(c, out);
  } else if (c < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

std::string StringRepr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const bool has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : Decode(text)) AppendCharRepr(c, static_cast<char32_t>(quote), out);
  out.push_back(quote);
  return out;
}

Result<std::string> ItemsRepr(Runtime& runtime, const std::vector<Value>& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    KVERN_ASSIGN_OR_RETURN(const std::string item, ToRepr(runtime, items[i]));
    out += item;
  }
  return out;
}

Result<std::string> ListRepr(Runtime& runtime, const Value& value) {
  const List& list = value.list();
  if (list.flavor == List::Flavor::kRange) return list.repr;
  KVERN_ASSIGN_OR_RETURN(const std::string items, ItemsRepr(runtime, list.items));
  switch (list.flavor) {
    case List::Flavor::kList:
      return "[" + items + "]";
    case List::Flavor::kTuple:
    case List::Flavor::kGroup:
      return "(" + items + (list.items.size() == 1 ? ",)" : ")");
    default:
      return fmt::format("{}([{}])", value.type_name(), items);
  }
}

Result<std::string> DictRepr(Runtime& runtime, const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries()) {
    if (out.size() > 1) out += ", ";
    KVERN_ASSIGN_OR_RETURN(const std::string key_repr, ToRepr(runtime, key));
    KVERN_ASSIGN_OR_RETURN(const std::string value_repr, ToRepr(runtime, value));
    out += key_repr + ": " + value_repr;
  }
  return out + "}";
}

std::string StripForNumber(std::string_view text) {
  std::u32string decoded = Decode(text);
  while (!decoded.empty() && Is(decoded.back(), kSpace)) decoded.pop_back();
  size_t start = 0;
  while (start < decoded.size() && Is(decoded[start], kSpace)) ++start;
  std::string out;
  for (const char32_t c : std::u32string_view(decoded).substr(start)) {
    AppendUtf8(Is(c, kDecimal) ? U'0' + static_cast<char32_t>(DecimalValue(c)) : c, out);
  }
  return out;
}

// Removes underscores between digits; nothing when one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  const auto is_digit = [text](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

int PrefixBase(std::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') return 0;
  switch (digits[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 0;
  }
}

}  // namespace

Result<std::string> ToStr(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_undefined()) return std::string();
  return ToRepr(runtime, value);
}

Result<std::string> ToRepr(Runtime& runtime, const Value& value) {
  KVERN_RETURN_IF_ERROR(runtime.Step());
  const Runtime::Level level(runtime);
  KVERN_RETURN_IF_ERROR(level.status());
  Result<std::string> repr = std::string();
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return std::string("Undefined");
    case Value::Kind::kNone:
      return std::string("None");
    case Value::Kind::kBool:
      return std::string(value.as_bool() ? "True" : "False");
    case Value::Kind::kInt:
      return std::to_string(value.as_int());
    case Value::Kind::kFloat:
      return FloatRepr(value.as_float());
    case Value::Kind::kString:
      repr = value.is_safe_string() ? "Markup(" + StringRepr(value.str()) + ")"
                                    : StringRepr(value.str());
      break;
    case Value::Kind::kList:
      repr = ListRepr(runtime, value);
      break;
    case Value::Kind::kDict:
      repr = DictRepr(runtime, value.dict());
      break;
    case Value::Kind::kIterator:
      return std::string("<generator>");
    case Value::Kind::kObject:
      repr = value.object()->Repr(runtime);
      break;
  }
  if (repr.ok()) KVERN_RETURN_IF_ERROR(runtime.Charge(repr->size()));
  return repr;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (num_digits > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (num_digits <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - num_digits), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  const std::string stripped = StripForNumber(text);
  std::string_view digits = stripped;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const int prefix = PrefixBase(digits);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    digits.remove_prefix(2);
    base = prefix;
    if (digits.starts_with('_')) digits.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    const bool has_leading_zero = digits.size() > 1 && digits[0] == '0';
    if (has_leading_zero && digits.find_first_not_of("0_") != std::string_view::npos) {
      return std::nullopt;
    }
  }
  const std::optional<std::string> plain = WithoutUnderscores(digits);
  if (!plain || plain->empty() || !std::isalnum(static_cast<unsigned char>((*plain)[0]))) {
    return std::nullopt;
  }
  const std::string number = (negative ? "-" : "") + *plain;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> plain = WithoutUnderscores(StripForNumber(text));
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view number = *plain;
  if (number[0] == '+') number.remove_prefix(1);
  if (number.empty() || number[0] == '+' || number.find('(') != std::string_view::npos) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(plain->c_str(), nullptr);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> Truncate(double value) {
  if (!(value > -9223372036854775808.0 && value < 9223372036854775808.0)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Result<int64_t> ToIndex(const Value& value, std::string_view what) {
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_integral()) {
    return TypeError("{} must be an integer, not '{}'", what, value.type_name());
  }
  return value.as_int();
}

}  // namespace kvern::text::jinja
