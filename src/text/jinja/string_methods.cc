#include <algorithm>

#include "text/jinja/convert.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_algorithms.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

Result<Value> Same(Runtime& runtime, const Value& self, std::string text) {
  return runtime.NewString(std::move(text), self.is_safe_string());
}

Result<Value> Pieces(Runtime& runtime, const Value& self, const std::vector<std::string>& pieces,
                     List::Flavor flavor = List::Flavor::kList) {
  KVERN_RETURN_IF_ERROR(runtime.Step(pieces.size()));
  KVERN_RETURN_IF_ERROR(runtime.Charge(self.str().size()));
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string& piece : pieces) {
    items.push_back(Value::MakeString(piece, self.is_safe_string()));
  }
  return runtime.NewList(std::move(items), flavor);
}

Result<std::string_view> Text(const Args& args, size_t i, std::string_view what) {
  if (args[i].is_string()) return std::string_view(args[i].str());
  if (args[i].is_undefined()) return UndefinedError(args[i]);
  return TypeError("{} must be str, not {}", what, args[i].type_name());
}

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(Runtime& runtime, const Value& self, const Args&) {
  return Same(runtime, self, kMap(self.str()));
}

template <StripSide kSide>
Result<Value> Stripped(Runtime& runtime, const Value& self, const Args& args) {
  if (!args.has_value(0)) return Same(runtime, self, Strip(self.str(), std::nullopt, kSide));
  KVERN_ASSIGN_OR_RETURN(const std::string_view chars, Text(args, 0, "strip arg"));
  return Same(runtime, self, Strip(self.str(), chars, kSide));
}

template <bool kFromRight>
Result<Value> Split(Runtime& runtime, const Value& self, const Args& args) {
  int64_t limit = -1;
  if (args.has(1)) {
    KVERN_ASSIGN_OR_RETURN(limit, ToIndex(args[1], "maxsplit"));
  }
  if (!args.has_value(0)) return Pieces(runtime, self, SplitSpace(self.str(), limit, kFromRight));
  KVERN_ASSIGN_OR_RETURN(const std::string_view separator, Text(args, 0, "separator"));
  if (separator.empty()) return TemplateError("empty separator");
  return Pieces(runtime, self, SplitOn(self.str(), separator, limit, kFromRight));
}

Result<Value> SplitLinesMethod(Runtime& runtime, const Value& self, const Args& args) {
  return Pieces(runtime, self, SplitLines(self.str(), args.IsTrue(0)));
}

template <bool kFromRight>
Result<Value> Partition(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view separator, Text(args, 0, "separator"));
  if (separator.empty()) return TemplateError("empty separator");
  const std::string& text = self.str();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  std::vector<std::string> parts = {text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), std::string(separator), text.substr(at + separator.size())};
  } else if (kFromRight) {
    parts = {"", "", text};
  }
  return Pieces(runtime, self, parts, List::Flavor::kTuple);
}

Result<Value> Replace(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view old, Text(args, 0, "replace() argument 1"));
  KVERN_RETURN_IF_ERROR(Text(args, 1, "replace() argument 2"));
  int64_t count = -1;
  if (args.has(2)) {
    KVERN_ASSIGN_OR_RETURN(count, ToIndex(args[2], "count"));
  }
  std::string replacement = args[1].str();
  if (self.is_safe_string()) {
    KVERN_ASSIGN_OR_RETURN(replacement, EscapeValue(runtime, args[1]));
  }
  KVERN_ASSIGN_OR_RETURN(std::string text,
                         ReplaceAll(runtime, self.str(), old, replacement, count));
  return Value::MakeString(std::move(text), self.is_safe_string());
}

// text[start:end] as find(), count() and startswith() take it; nothing when start is beyond it.
struct Window {
  std::u32string text;
  int64_t start;
};
Result<std::optional<Window>> CutWindow(const Value& self, const Args& args) {
  std::u32string text = Decode(self.str());
  const auto size = static_cast<int64_t>(text.size());
  int64_t start = 0;
  int64_t end = size;
  if (args.has_value(1)) {
    KVERN_ASSIGN_OR_RETURN(start, ToIndex(args[1], "slice indices"));
  }
  if (args.has_value(2)) {
    KVERN_ASSIGN_OR_RETURN(end, ToIndex(args[2], "slice indices"));
  }
  if (end > size) end = size;
  if (end < 0) end = std::max<int64_t>(end + size, 0);
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (start > end) return std::optional<Window>();
  text = text.substr(static_cast<size_t>(start), static_cast<size_t>(end - start));
  return std::optional<Window>(Window{std::move(text), start});
}

template <bool kAtEnd>
Result<Value> HasAffix(Runtime& runtime, const Value& self, const Args& args) {
  std::vector<Value> affixes = {args[0]};
  if (args[0].is_list() && args[0].list().is_tuple()) affixes = args[0].items();
  std::string text = self.str();
  if (args.has(1)) {
    KVERN_ASSIGN_OR_RETURN(const std::optional<Window> window, CutWindow(self, args));
    if (!window) return Value::Bool(false);
    text = Encode(window->text);
  }
  KVERN_RETURN_IF_ERROR(runtime.Step(affixes.size()));
  for (const Value& affix : affixes) {
    if (affix.is_undefined()) return TypeError("startswith first arg must be str, not Undefined");
    if (!affix.is_string()) {
      return TypeError("startswith first arg must be str or a tuple of str, not {}",
                       affix.type_name());
    }
    if (kAtEnd ? text.ends_with(affix.str()) : text.starts_with(affix.str())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

template <bool kFromRight>
Result<std::optional<int64_t>> Search(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view wanted, Text(args, 0, "argument"));
  KVERN_RETURN_IF_ERROR(runtime.Charge(self.str().size() * sizeof(char32_t)));
  KVERN_ASSIGN_OR_RETURN(const std::optional<Window> window, CutWindow(self, args));
  if (!window) return std::optional<int64_t>();
  const std::u32string needle = Decode(wanted);
  const size_t at = kFromRight ? window->text.rfind(needle) : window->text.find(needle);
  if (at == std::u32string::npos) return std::optional<int64_t>();
  return std::optional<int64_t>(window->start + static_cast<int64_t>(at));
}

template <bool kFromRight>
Result<Value> Find(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const auto at, Search<kFromRight>(runtime, self, args));
  return Value::Int(at.value_or(-1));
}

template <bool kFromRight>
Result<Value> IndexOf(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const auto at, Search<kFromRight>(runtime, self, args));
  if (!at) return TemplateError("substring not found");
  return Value::Int(*at);
}

Result<Value> Count(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view wanted, Text(args, 0, "argument"));
  KVERN_RETURN_IF_ERROR(runtime.Charge(self.str().size() * sizeof(char32_t)));
  KVERN_ASSIGN_OR_RETURN(const std::optional<Window> window, CutWindow(self, args));
  if (!window) return Value::Int(0);
  const std::u32string needle = Decode(wanted);
  if (needle.empty()) return Value::Int(static_cast<int64_t>(window->text.size()) + 1);
  int64_t count = 0;
  for (size_t at = window->text.find(needle); at != std::u32string::npos;
       at = window->text.find(needle, at + needle.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <char kAlign>
Result<Value> Justify(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const int64_t width, ToIndex(args[0], "width"));
  FormatSpec spec;
  spec.width = static_cast<size_t>(std::max<int64_t>(width, 0));
  spec.align = kAlign;
  if (args.has(1)) {
    KVERN_ASSIGN_OR_RETURN(const std::string_view fill, Text(args, 1, "fill character"));
    const std::u32string decoded = Decode(fill);
    if (decoded.size() != 1) {
      return TypeError("The fill character must be exactly one character long");
    }
    spec.fill = decoded[0];
  }
  if (spec.width > runtime.limits().allocated_bytes) return runtime.Charge(spec.width).error();
  KVERN_RETURN_IF_ERROR(CheckWidth(runtime, spec.width));
  const size_t length = CountCodePoints(self.str());
  if (kAlign == '^' && spec.width > length) {
    // str.center puts the odd space left when the width is odd, unlike format's ^.
    const size_t padding = spec.width - length;
    const size_t left = padding / 2 + (padding & spec.width & 1);
    FormatSpec half = spec;
    half.align = '>';
    half.width = length + left;
    spec.align = '<';
    return Same(runtime, self, PadText(spec, PadText(half, self.str(), '>'), '<'));
  }
  return Same(runtime, self, PadText(spec, self.str(), kAlign));
}

Result<Value> ZFill(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const int64_t width, ToIndex(args[0], "width"));
  const size_t length = CountCodePoints(self.str());
  const auto wanted = static_cast<size_t>(std::max<int64_t>(width, 0));
  if (wanted <= length) return self;
  if (wanted > runtime.limits().allocated_bytes) return runtime.Charge(wanted).error();
  KVERN_RETURN_IF_ERROR(CheckWidth(runtime, wanted));
  std::string text = self.str();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  text.insert(has_sign ? 1 : 0, wanted - length, '0');
  return Same(runtime, self, std::move(text));
}

Result<Value> ExpandTabs(Runtime& runtime, const Value& self, const Args& args) {
  int64_t size = 8;
  if (args.has(0)) {
    KVERN_ASSIGN_OR_RETURN(size, ToIndex(args[0], "tabsize"));
  }
  if (size > 1000) return Errorf(ErrorCode::kUnsupported, "expandtabs() size over 1000");
  std::string out;
  int64_t column = 0;
  for (const char32_t c : Decode(self.str())) {
    if (c != '\t') {
      AppendUtf8(c, out);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    } else if (size > 0) {
      const int64_t spaces = size - column % size;
      KVERN_RETURN_IF_ERROR(runtime.Charge(static_cast<size_t>(spaces)));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    }
  }
  return Same(runtime, self, std::move(out));
}

template <bool kAtEnd>
Result<Value> RemoveAffix(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view affix, Text(args, 0, "affix"));
  const std::string& text = self.str();
  if (kAtEnd && text.ends_with(affix)) {
    return Same(runtime, self, text.substr(0, text.size() - affix.size()));
  }
  if (!kAtEnd && text.starts_with(affix)) return Same(runtime, self, text.substr(affix.size()));
  return self;
}

template <uint16_t kClasses>
Result<Value> AllAre(Runtime&, const Value& self, const Args&) {
  const std::u32string text = Decode(self.str());
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), [](char32_t c) {
    return (CharClasses(c) & kClasses) != 0;
  }));
}

Result<Value> IsPrintable(Runtime& runtime, const Value& self, const Args& args) {
  return self.str().empty() ? Value::Bool(true) : AllAre<kPrintable>(runtime, self, args);
}

Result<Value> IsAsciiMethod(Runtime&, const Value& self, const Args&) {
  return Value::Bool(IsAscii(self.str()));
}

Result<Value> IsIdentifier(Runtime&, const Value& self, const Args&) {
  const std::u32string text = Decode(self.str());
  return Value::Bool(
      !text.empty() && Is(text[0], kIdentifierStart) &&
      std::all_of(text.begin(), text.end(), [](char32_t c) { return Is(c, kIdentifierPart); }));
}

// Has a character of the wanted case and none of the other.
template <CharClass kWanted, uint16_t kForbidden>
Result<Value> IsCase(Runtime&, const Value& self, const Args&) {
  bool found = false;
  for (const char32_t c : Decode(self.str())) {
    if ((CharClasses(c) & kForbidden) != 0) return Value::Bool(false);
    found = found || Is(c, kWanted);
  }
  return Value::Bool(found);
}

Result<Value> IsTitle(Runtime&, const Value& self, const Args&) {
  bool found = false;
  bool in_word = false;
  for (const char32_t c : Decode(self.str())) {
    if (Is(c, CharClass(kUpper | kTitle))) {
      if (in_word) return Value::Bool(false);
      found = in_word = true;
    } else if (Is(c, kLower)) {
      if (!in_word) return Value::Bool(false);
      found = in_word = true;
    } else {
      in_word = false;
    }
  }
  return Value::Bool(found);
}

// clang-format off
const Method kStringMethods[] = {
    {"capitalize", {}, Mapped<Capitalize>},
    {"center", {{"width", "fillchar"}, 1}, Justify<'^'>},
    {"count", {{"sub", "start", "end"}, 1}, Count},
    {"endswith", {{"suffix", "start", "end"}, 1}, HasAffix<true>},
    {"expandtabs", {{"tabsize"}, 0}, ExpandTabs},
    {"find", {{"sub", "start", "end"}, 1}, Find<false>},
    {"format", {{}, 0, true}, StrFormat},
    {"index", {{"sub", "start", "end"}, 1}, IndexOf<false>},
    {"isalnum", {}, AllAre<kAlpha | kDecimal | kDigit | kNumeric>},
    {"isalpha", {}, AllAre<kAlpha>},
    {"isascii", {}, IsAsciiMethod},
    {"isdecimal", {}, AllAre<kDecimal>},
    {"isdigit", {}, AllAre<kDigit>},
    {"isidentifier", {}, IsIdentifier},
    {"islower", {}, IsCase<kLower, kUpper | kTitle>},
    {"isnumeric", {}, AllAre<kNumeric>},
    {"isprintable", {}, IsPrintable},
    {"isspace", {}, AllAre<kSpace>},
    {"istitle", {}, IsTitle},
    {"isupper", {}, IsCase<kUpper, kLower | kTitle>},
    {"join", {{"iterable"}, 1}, StrJoin},
    {"ljust", {{"width", "fillchar"}, 1}, Justify<'<'>},
    {"lower", {}, Mapped<ToLower>},
    {"lstrip", {{"chars"}, 0}, Stripped<StripSide::kLeft>},
    {"partition", {{"sep"}, 1}, Partition<false>},
    {"removeprefix", {{"prefix"}, 1}, RemoveAffix<false>},
    {"removesuffix", {{"suffix"}, 1}, RemoveAffix<true>},
    {"replace", {{"old", "new", "count"}, 2}, Replace},
    {"rfind", {{"sub", "start", "end"}, 1}, Find<true>},
    {"rindex", {{"sub", "start", "end"}, 1}, IndexOf<true>},
    {"rjust", {{"width", "fillchar"}, 1}, Justify<'>'>},
    {"rpartition", {{"sep"}, 1}, Partition<true>},
    {"rsplit", {{"sep", "maxsplit"}, 0}, Split<true>},
    {"rstrip", {{"chars"}, 0}, Stripped<StripSide::kRight>},
    {"split", {{"sep", "maxsplit"}, 0}, Split<false>},
    {"splitlines", {{"keepends"}, 0}, SplitLinesMethod},
    {"startswith", {{"prefix", "start", "end"}, 1}, HasAffix<false>},
    {"strip", {{"chars"}, 0}, Stripped<StripSide::kBoth>},
    {"swapcase", {}, Mapped<SwapCase>},
    {"title", {}, Mapped<ToTitle>},
    {"upper", {}, Mapped<ToUpper>},
    {"zfill", {{"width"}, 1}, ZFill},
};
// clang-format on

}  // namespace

std::span<const Method> StringMethods() { return kStringMethods; }

Result<Value> StrJoin(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime, args[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string() && !self.is_safe_string()) {
      return TypeError("sequence item {}: expected str instance, {} found", i,
                       items[i].type_name());
    }
    KVERN_RETURN_IF_ERROR(runtime.Charge(self.str().size()));
    if (i > 0) out += self.str();
    Result<std::string> item =
        self.is_safe_string() ? EscapeValue(runtime, items[i]) : ToStr(runtime, items[i]);
    if (!item.ok()) return item.error();
    KVERN_RETURN_IF_ERROR(runtime.Charge(item->size()));
    out += *item;
  }
  return Value::MakeString(std::move(out), self.is_safe_string());
}

}  // namespace kvern::text::jinja
