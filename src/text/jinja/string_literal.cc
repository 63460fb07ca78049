#include "text/jinja/string_literal.h"

#include <charconv>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

// The character of a one-letter escape, or '\0' when it is not one.
char SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

Status AppendCode(std::string_view digits, int base, size_t wanted, std::string& out) {
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() < wanted) {
    return TemplateError("truncated escape in a string");
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return TemplateError("escape U+{:04X} in a string is not a character", code);
  }
  AppendUtf8(code, out);
  return {};
}

size_t HexDigits(char kind) { return kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0; }

}  // namespace

Result<std::string> ResolveEscapes(std::string_view body) {
  std::string out;
  size_t at = 0;
  while (at < body.size()) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out.push_back(body[at++]);
      continue;
    }
    const char kind = body[at + 1];
    at += 2;
    if (const char simple = SimpleEscape(kind)) {
      out.push_back(simple);
    } else if (const size_t digits = HexDigits(kind)) {
      KVERN_RETURN_IF_ERROR(AppendCode(body.substr(at, digits), 16, digits, out));
      at += digits;
    } else if (kind >= '0' && kind <= '7') {
      size_t length = 1;
      while (length < 3 && at - 1 + length < body.size() && body[at - 1 + length] >= '0' &&
             body[at - 1 + length] <= '7') {
        ++length;
      }
      KVERN_RETURN_IF_ERROR(AppendCode(body.substr(at - 1, length), 8, 1, out));
      at += length - 1;
    } else if (kind == 'N') {
      return Errorf(ErrorCode::kUnsupported, "the escape \\N{{...}} is not supported");
    } else if (kind != '\n') {
      out.push_back('\\');
      out.push_back(kind);
    }
  }
  return out;
}

}  // namespace kvern::text::jinja
