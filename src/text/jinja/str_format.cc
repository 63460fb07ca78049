// str.format and its replacement fields: {}, {0}, {name.attribute[key]!r:>{width}}.
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/attributes.h"
#include "text/jinja/convert.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

constexpr int kMaxNesting = 3;  // a text, a field's format spec, a field's spec in that

class FieldFormatter {
 public:
  FieldFormatter(Runtime& runtime, const CallArgs& args, bool is_safe)
      : runtime_(runtime), args_(args), is_safe_(is_safe) {}

  Result<std::string> Format(std::string_view text, int nesting) {
    if (nesting > kMaxNesting) return TemplateError("Max string recursion exceeded");
    std::string out;
    size_t at = 0;
    while (at < text.size()) {
      KVERN_RETURN_IF_ERROR(runtime_.Step());
      const char c = text[at++];
      const bool is_doubled = at < text.size() && text[at] == c;
      if (c != '{' && c != '}') {
        out.push_back(c);
      } else if (is_doubled) {
        out.push_back(c);
        ++at;
      } else if (c == '}') {
        return TemplateError("Single '}}' encountered in format string");
      } else {
        KVERN_ASSIGN_OR_RETURN(const std::string_view field, TakeField(text, at));
        KVERN_ASSIGN_OR_RETURN(const std::string value, Field(field, nesting));
        KVERN_RETURN_IF_ERROR(runtime_.Charge(value.size()));
        out += value;
      }
    }
    return out;
  }

 private:
  // The text of the field that begins at `at`; leaves `at` behind its closing brace.
  static Result<std::string_view> TakeField(std::string_view text, size_t& at) {
    const size_t start = at;
    int open = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '[' && open == 1) {
        const size_t close = text.find(']', at);
        if (close != std::string_view::npos) at = close;
      }
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return text.substr(start, at++ - start);
    }
    return TemplateError("expected '}}' before end of string");
  }

  Result<std::string> Field(std::string_view field, int nesting) {
    const size_t end = NameEnd(field);
    const std::string_view name = field.substr(0, end);
    std::string_view rest = field.substr(end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2) return TemplateError("end of string while looking for conversion");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') {
        return TemplateError("expected ':' after conversion specifier");
      }
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    KVERN_ASSIGN_OR_RETURN(Value value, Lookup(name));
    KVERN_ASSIGN_OR_RETURN(const std::string spec, Format(rest, nesting + 1));
    if (conversion == 's') {
      KVERN_ASSIGN_OR_RETURN(std::string text, ToStr(runtime_, value));
      value = Value::MakeString(std::move(text));
    } else if (conversion == 'r' || conversion == 'a') {
      KVERN_ASSIGN_OR_RETURN(std::string text, ToRepr(runtime_, value));
      value = Value::MakeString(std::move(text));
    } else if (conversion != '\0') {
      return TemplateError("Unknown conversion specifier '{}'", conversion);
    }
    KVERN_ASSIGN_OR_RETURN(const std::string text, FormatValue(runtime_, value, spec));
    return is_safe_ && !value.is_safe_string() ? EscapeHtml(text) : text;
  }

  static size_t NameEnd(std::string_view field) {
    bool in_brackets = false;
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i] == '[') in_brackets = true;
      if (field[i] == ']') in_brackets = false;
      if (!in_brackets && (field[i] == '!' || field[i] == ':')) return i;
    }
    return field.size();
  }

  Result<Value> Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    KVERN_ASSIGN_OR_RETURN(Value value, First(name.substr(0, end)));
    name.remove_prefix(end);
    while (!name.empty()) {
      KVERN_RETURN_IF_ERROR(runtime_.Step());
      if (name[0] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", 1), name.size());
        KVERN_ASSIGN_OR_RETURN(value, GetAttr(runtime_, value, name.substr(1, stop - 1)));
        name.remove_prefix(stop);
        continue;
      }
      const size_t close = name.find(']');
      if (name[0] != '[' || close == std::string_view::npos) {
        return TemplateError("malformed field name in format string");
      }
      const std::string_view key = name.substr(1, close - 1);
      const std::optional<int64_t> index = ParseInt(key, 10);
      const Value item = index ? Value::Int(*index) : Value::MakeString(std::string(key));
      KVERN_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, item));
      name.remove_prefix(close + 1);
    }
    return value;
  }

  Result<Value> First(std::string_view name) {
    std::optional<int64_t> index = ParseInt(name, 10);
    if (name.empty()) index = next_++;
    if (index) {
      if (*index < 0 || static_cast<size_t>(*index) >= args_.positional.size()) {
        return TemplateError("Replacement index {} out of range for positional args tuple", *index);
      }
      return args_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    return TemplateError("format() has no argument '{}'", name);
  }

  Runtime& runtime_;
  const CallArgs& args_;
  bool is_safe_;
  int64_t next_ = 0;
};

}  // namespace

Result<Value> StrFormat(Runtime& runtime, const Value& self, const Args& args) {
  FieldFormatter formatter(runtime, args.rest, self.is_safe_string());
  KVERN_ASSIGN_OR_RETURN(std::string text, formatter.Format(self.str(), 1));
  return runtime.NewString(std::move(text), self.is_safe_string());
}

}  // namespace kvern::text::jinja
