#include "text/jinja/printf_format.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/convert.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

class Formatter {
 public:
  Formatter(Runtime& runtime, const Value& format, const Value& arguments)
      : runtime_(runtime),
        is_safe_(format.is_safe_string()),
        text_(format.str()),
        arguments_(arguments) {
    is_tuple_ = arguments.is_list() && arguments.list().is_tuple();
  }

  Result<std::string> Run() {
    while (at_ < text_.size()) {
      const size_t percent = text_.find('%', at_);
      out_ += text_.substr(at_, percent - at_);
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      KVERN_RETURN_IF_ERROR(runtime_.Step());
      KVERN_RETURN_IF_ERROR(Directive());
    }
    const size_t given = is_tuple_ ? arguments_.items().size() : 1;
    // Python lets anything subscriptable go unused.
    const bool may_stay =
        !is_tuple_ && (arguments_.is_dict() || arguments_.is_list() || arguments_.is_undefined());
    if (next_ < given && !may_stay) {
      return TypeError("not all arguments converted during string formatting");
    }
    return out_;
  }

 private:
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Result<Value> NextArgument() {
    const size_t given = is_tuple_ ? arguments_.items().size() : 1;
    if (next_ >= given) return TypeError("not enough arguments for format string");
    return is_tuple_ ? arguments_.items()[next_++] : (++next_, arguments_);
  }

  Result<std::optional<Value>> KeyArgument() {
    if (Peek() != '(') return std::optional<Value>();
    int open = 0;
    const size_t start = at_ + 1;
    do {
      if (at_ >= text_.size()) return TemplateError("incomplete format key");
      open += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
      ++at_;
    } while (open > 0);
    if (!arguments_.is_dict()) return TypeError("format requires a mapping");
    const std::string_view key = text_.substr(start, at_ - start - 1);
    const Value* const found = arguments_.dict().Find(key);
    if (found == nullptr) return TemplateError("format key '{}' is missing", key);
    return std::optional<Value>(*found);
  }

  Result<std::optional<int64_t>> Number() {
    if (Peek() == '*') {
      ++at_;
      KVERN_ASSIGN_OR_RETURN(const Value argument, NextArgument());
      KVERN_ASSIGN_OR_RETURN(const int64_t number, ToIndex(argument, "*"));
      return std::optional<int64_t>(number);
    }
    std::optional<int64_t> number;
    while (Peek() >= '0' && Peek() <= '9') {
      number = number.value_or(0) * 10 + (text_[at_++] - '0');
      if (*number > INT32_MAX) return TemplateError("width too big");
    }
    return number;
  }

  Result<FormatSpec> Spec() {
    FormatSpec spec;
    bool left = false;
    bool zero = false;
    for (;; ++at_) {
      const char flag = Peek();
      if (flag == '-') {
        left = true;
      } else if (flag == '0') {
        zero = true;
      } else if (flag == '#') {
        spec.is_alternate = true;
      } else if (flag == '+') {
        spec.sign = '+';
      } else if (flag == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else {
        break;
      }
    }
    KVERN_ASSIGN_OR_RETURN(std::optional<int64_t> width, Number());
    if (width && *width < 0) {
      left = true;
      width = -*width;
    }
    spec.width = static_cast<size_t>(width.value_or(0));
    if (Peek() == '.') {
      ++at_;
      KVERN_ASSIGN_OR_RETURN(const std::optional<int64_t> precision, Number());
      const int64_t digits = std::max<int64_t>(precision.value_or(0), 0);
      if (digits > 1000) return TemplateError("precision too big");
      spec.precision = static_cast<int>(digits);
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    spec.align = left ? '<' : zero ? '=' : '>';
    spec.fill = zero && !left ? '0' : ' ';
    if (at_ >= text_.size()) return TemplateError("incomplete format");
    spec.type = text_[at_++];
    return spec;
  }

  Status Directive() {
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> value, KeyArgument());
    const bool has_key = value.has_value();
    KVERN_ASSIGN_OR_RETURN(const FormatSpec spec, Spec());
    if (spec.type == '%') {
      out_.push_back('%');
      return {};
    }
    KVERN_RETURN_IF_ERROR(CheckWidth(runtime_, spec.width));
    if (!has_key) {
      KVERN_ASSIGN_OR_RETURN(value, NextArgument());
    } else {
      next_ = 1;
    }
    KVERN_ASSIGN_OR_RETURN(const std::string text, Convert(spec, *value));
    out_ += text;
    return runtime_.Charge(text.size());
  }

  Result<std::string> Convert(const FormatSpec& spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        Result<std::string> text =
            spec.type == 's' ? ToStr(runtime_, value) : ToRepr(runtime_, value);
        if (!text.ok()) return text.error();
        if (is_safe_ && !value.is_safe_string()) text = EscapeHtml(*text);
        return Text(spec, *text);
      }
      case 'c':
        return Character(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return Integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!value.is_number()) return TypeError("must be real number, not {}", value.type_name());
        const double number = value.as_float();
        return PadNumber(
            spec, std::signbit(number) && !std::isnan(number), "",
            FormatMagnitude(number, spec.type, spec.precision.value_or(6), spec.is_alternate));
      }
      default:
        return TemplateError("unsupported format character '{}'", spec.type);
    }
  }

  static std::string Text(FormatSpec spec, std::string text) {
    if (spec.precision) text = Encode(Decode(text).substr(0, static_cast<size_t>(*spec.precision)));
    spec.fill = ' ';
    return PadText(spec, std::move(text), '>');
  }

  static Result<std::string> Character(const FormatSpec& spec, const Value& value) {
    if (value.is_string() && CountCodePoints(value.str()) == 1) return Text(spec, value.str());
    if (!value.is_integral()) return TypeError("%c requires int or char");
    if (value.as_int() < 0 || value.as_int() > 0x10FFFF) {
      return TemplateError("%c arg not in range(0x110000)");
    }
    std::string character;
    AppendUtf8(static_cast<char32_t>(value.as_int()), character);
    return Text(spec, character);
  }

  static Result<std::string> Integer(FormatSpec spec, const Value& value) {
    const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    std::optional<int64_t> number;
    if (value.is_integral()) {
      number = value.as_int();
    } else if (value.is_float() && is_decimal) {
      number = Truncate(value.as_float());
      if (!number) return TemplateError("cannot convert float {} to integer", value.as_float());
    } else {
      return TypeError("%{} format: a real number is required, not {}", spec.type,
                       value.type_name());
    }
    std::string prefix;
    if (spec.is_alternate && !is_decimal) prefix = std::string("0") + spec.type;
    const int base = is_decimal ? 10 : spec.type == 'o' ? 8 : 16;
    std::string digits = FormatMagnitude(*number, base, spec.type == 'X');
    const auto least = static_cast<size_t>(spec.precision.value_or(0));
    if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
    return PadNumber(spec, *number < 0, prefix, digits);
  }

  Runtime& runtime_;
  bool is_safe_;
  std::string_view text_;
  const Value& arguments_;
  bool is_tuple_ = false;
  size_t at_ = 0;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

Result<Value> PrintfFormat(Runtime& runtime, const Value& format, const Value& arguments) {
  KVERN_ASSIGN_OR_RETURN(std::string text, Formatter(runtime, format, arguments).Run());
  return runtime.NewString(std::move(text), format.is_safe_string());
}

}  // namespace kvern::text::jinja
