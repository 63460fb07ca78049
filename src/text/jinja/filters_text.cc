#include <algorithm>
#include <string>

#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/json.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/text_algorithms.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  return runtime.NewString(kMap(text), input.is_safe_string());
}

Result<Value> StringOf(Runtime& runtime, const Value& input, const Args&) {
  if (input.is_string()) return input;
  KVERN_ASSIGN_OR_RETURN(std::string text, ToStr(runtime, input));
  return runtime.NewString(std::move(text));
}

Result<Value> Safe(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(std::string text, ToStr(runtime, input));
  return runtime.NewString(std::move(text), true);
}

Result<Value> Escape(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(std::string text, EscapeValue(runtime, input));
  return runtime.NewString(std::move(text), true);
}

Result<Value> ForceEscape(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  return runtime.NewString(EscapeHtml(text), true);
}

Result<Value> Trim(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  std::optional<std::string_view> chars;
  if (args.has_value(0)) {
    if (!args[0].is_string()) return TypeError("strip arg must be None or str");
    chars = args[0].str();
  }
  return runtime.NewString(Strip(text, chars, StripSide::kBoth), input.is_safe_string());
}

// Words begin after white space, hyphens and opening brackets.
Result<Value> Title(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  const std::u32string decoded = Decode(text);
  std::string out;
  const auto separates = [](char32_t c) {
    return Is(c, kSpace) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  for (size_t at = 0; at < decoded.size();) {
    const bool is_gap = separates(decoded[at]);
    size_t end = at;
    while (end < decoded.size() && separates(decoded[end]) == is_gap) ++end;
    out += ToUpper(Encode(decoded.substr(at, 1)));
    out += ToLower(Encode(decoded.substr(at + 1, end - at - 1)));
    at = end;
  }
  return runtime.NewString(std::move(out));
}

Result<Value> Replace(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  KVERN_ASSIGN_OR_RETURN(const std::string old, ToStr(runtime, args[0]));
  KVERN_ASSIGN_OR_RETURN(const std::string replacement, ToStr(runtime, args[1]));
  int64_t count = -1;
  if (args.has_value(2)) {
    KVERN_ASSIGN_OR_RETURN(count, ToIndex(args[2], "count"));
  }
  KVERN_ASSIGN_OR_RETURN(std::string out, ReplaceAll(runtime, text, old, replacement, count));
  return Value::MakeString(std::move(out));
}

Result<std::string> Indention(Runtime& runtime, const Args& args) {
  if (!args.has(0)) return std::string(4, ' ');
  if (args[0].is_string()) return args[0].str();
  KVERN_ASSIGN_OR_RETURN(const int64_t width, ToIndex(args[0], "indent width"));
  const auto count = static_cast<size_t>(std::max<int64_t>(width, 0));
  KVERN_RETURN_IF_ERROR(runtime.Charge(count));
  return std::string(count, ' ');
}

Result<Value> Indent(Runtime& runtime, const Value& input, const Args& args) {
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_string()) return TypeError("indent needs a string, not '{}'", input.type_name());
  KVERN_ASSIGN_OR_RETURN(std::string indention, Indention(runtime, args));
  if (input.is_safe_string()) indention = EscapeHtml(indention);
  const bool first = args.IsTrue(1);
  const bool blank = args.IsTrue(2);
  const std::vector<std::string> lines = SplitLines(input.str() + "\n", false);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    KVERN_RETURN_IF_ERROR(runtime.Charge(indention.size() + lines[i].size()));
    if (i > 0) out += "\n";
    const bool is_indented = i == 0 ? first : blank || !lines[i].empty();
    if (is_indented) out += indention;
    out += lines[i];
  }
  return runtime.NewString(std::move(out), input.is_safe_string());
}

Result<Value> Truncate(Runtime& runtime, const Value& input, const Args& args) {
  if (!input.is_string()) return TypeError("truncate needs a string, not '{}'", input.type_name());
  int64_t length = 255;
  int64_t leeway = 5;
  if (args.has(0)) {
    KVERN_ASSIGN_OR_RETURN(length, ToIndex(args[0], "length"));
  }
  if (args.has_value(3)) {
    KVERN_ASSIGN_OR_RETURN(leeway, ToIndex(args[3], "leeway"));
  }
  std::string end = "...";
  if (args.has(2)) {
    KVERN_ASSIGN_OR_RETURN(end, ToStr(runtime, args[2]));
  }
  const auto end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length)
    return TemplateError("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return TemplateError("expected leeway >= 0, got {}", leeway);
  const std::u32string text = Decode(input.str());
  if (static_cast<int64_t>(text.size()) - leeway <= length) return input;
  std::string kept = Encode(text.substr(0, static_cast<size_t>(length - end_length)));
  if (!args.IsTrue(1)) kept = SplitOn(kept, " ", 1, true).front();
  kept += end;
  return runtime.NewString(std::move(kept), input.is_safe_string());
}

Result<Value> Center(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  const Value method = *BindMethod(Value::MakeString(text, input.is_safe_string()), "center");
  const CallArgs width{{args.has(0) ? args[0] : Value::Int(80)}, {}};
  return method.object()->Call(runtime, width);
}

Result<Value> WordCount(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, input));
  int64_t count = 0;
  bool in_word = false;
  for (const char32_t c : Decode(text)) {
    const bool is_word = c == '_' || Is(c, CharClass(kAlpha | kDecimal | kDigit | kNumeric));
    if (is_word && !in_word) ++count;
    in_word = is_word;
  }
  return Value::Int(count);
}

Result<Value> Format(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(std::string text, ToStr(runtime, input));
  if (!args.rest.positional.empty() && !args.rest.named.empty()) {
    return TemplateError("can't handle positional and keyword arguments at the same time");
  }
  Value arguments = Value::Tuple(args.rest.positional);
  if (!args.rest.named.empty()) {
    Dict dict;
    for (const auto& [name, value] : args.rest.named) dict.Set(name, value);
    arguments = Value::MakeDict(std::move(dict));
  }
  return PrintfFormat(runtime, Value::MakeString(std::move(text), input.is_safe_string()),
                      arguments);
}

Status ReadIndent(Runtime& runtime, const Value& indent, DumpOptions& options) {
  if (indent.is_string()) {
    options.indent = indent.str();
  } else {
    KVERN_ASSIGN_OR_RETURN(const int64_t width, ToIndex(indent, "indent"));
    const auto count = static_cast<size_t>(std::max<int64_t>(width, 0));
    KVERN_RETURN_IF_ERROR(runtime.Charge(count));
    options.indent = std::string(count, ' ');
  }
  options.item_separator = ",";
  return {};
}

Status ReadSeparators(Runtime& runtime, const Value& separators, DumpOptions& options) {
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> parts, Collect(runtime, separators));
  if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
    return TypeError("separators must be two strings");
  }
  options.item_separator = parts[0].str();
  options.key_separator = parts[1].str();
  return {};
}

// With the arguments and defaults of the transformers library's own tojson.
Result<Value> ToJson(Runtime& runtime, const Value& input, const Args& args) {
  DumpOptions options;
  options.ensure_ascii = args.IsTrue(0);
  options.sort_keys = args.IsTrue(3);
  if (args.has_value(1)) KVERN_RETURN_IF_ERROR(ReadIndent(runtime, args[1], options));
  if (args.has_value(2)) KVERN_RETURN_IF_ERROR(ReadSeparators(runtime, args[2], options));
  KVERN_ASSIGN_OR_RETURN(std::string text, DumpJson(runtime, input, options));
  return Value::MakeString(std::move(text));
}

const Filter kTextFilters[] = {
    {"capitalize", {}, Mapped<Capitalize>},
    {"center", {{"width"}, 0}, Center},
    {"e", {}, Escape},
    {"escape", {}, Escape},
    {"forceescape", {}, ForceEscape},
    {"format", {{}, 0, true}, Format},
    {"indent", {{"width", "first", "blank"}, 0}, Indent},
    {"lower", {}, Mapped<ToLower>},
    {"replace", {{"old", "new", "count"}, 2}, Replace},
    {"safe", {}, Safe},
    {"string", {}, StringOf},
    {"title", {}, Title},
    {"tojson", {{"ensure_ascii", "indent", "separators", "sort_keys"}, 0}, ToJson},
    {"trim", {{"chars"}, 0}, Trim},
    {"truncate", {{"length", "killwords", "end", "leeway"}, 0}, Truncate},
    {"upper", {}, Mapped<ToUpper>},
    {"wordcount", {}, WordCount},
};

}  // namespace

std::span<const Filter> TextFilters() { return kTextFilters; }

}  // namespace kvern::text::jinja
