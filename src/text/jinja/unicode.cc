#include "text/jinja/unicode.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::text::jinja {
namespace {

constexpr char32_t kFirstStrayByte = 0xDC80;  // stands for byte 0x80
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kSmallSigma = 0x3C3;
constexpr char32_t kCapitalSigma = 0x3A3;

// Bytes of the well-formed character at `text`, or 0.
size_t SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

const CaseRow* FindCase(char32_t c) {
  const CaseRow* const end = kCaseRows + kNumCaseRows;
  const CaseRow* const row = std::lower_bound(
      kCaseRows, end, c, [](const CaseRow& r, char32_t point) { return r.code_point < point; });
  return row != end && row->code_point == c ? row : nullptr;
}

using Mapping = uint32_t (CaseRow::*)[3];

void AppendMapped(char32_t c, Mapping mapping, std::string& out) {
  const CaseRow* const row = FindCase(c);
  if (row == nullptr) return AppendUtf8(c, out);
  for (const uint32_t mapped : row->*mapping) {
    if (mapped != 0) AppendUtf8(mapped, out);
  }
}

bool IsCased(char32_t c) { return Is(c, CharClass(kUpper | kLower | kTitle)); }

// A capital sigma ends a word if a cased letter precedes it and none follows (Unicode 3.13).
bool IsFinalSigma(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && Is(text[before - 1], kCaseIgnorable)) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && Is(text[after], kCaseIgnorable)) ++after;
  return after == text.size() || !IsCased(text[after]);
}

void AppendLower(std::u32string_view text, size_t at, std::string& out) {
  if (text[at] == kCapitalSigma) {
    AppendUtf8(IsFinalSigma(text, at) ? kFinalSigma : kSmallSigma, out);
  } else {
    AppendMapped(text[at], &CaseRow::lower, out);
  }
}

}  // namespace

std::u32string Decode(std::string_view utf8) {
  std::u32string text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    const size_t length = SequenceLength(utf8);
    const auto byte = [utf8](size_t i) { return static_cast<unsigned char>(utf8[i]); };
    if (length == 0) {
      text.push_back(kFirstStrayByte + byte(0) - 0x80);
      utf8.remove_prefix(1);
      continue;
    }
    char32_t c = length == 1 ? byte(0) : byte(0) & (0xFF >> (length + 1));
    for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3F);
    text.push_back(c);
    utf8.remove_prefix(length);
  }
  return text;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c >= kFirstStrayByte && c < kFirstStrayByte + 0x80) {
    out.push_back(static_cast<char>(c - kFirstStrayByte + 0x80));
  } else if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::string Encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, out);
  return out;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t CountCodePoints(std::string_view utf8) {
  if (IsAscii(utf8)) return utf8.size();
  size_t count = 0;
  while (!utf8.empty()) {
    utf8.remove_prefix(std::max<size_t>(1, SequenceLength(utf8)));
    ++count;
  }
  return count;
}

uint16_t CharClasses(char32_t c) {
  const ClassRange* const end = kClassRanges + kNumClassRanges;
  const ClassRange* const range = std::lower_bound(
      kClassRanges, end, c, [](const ClassRange& r, char32_t point) { return r.last < point; });
  return range != end && range->first <= c ? range->classes : 0;
}

int DecimalValue(char32_t c) {
  CHECK(Is(c, kDecimal));
  // Every script's digits are ten code points in a row, so the run's start gives the value.
  int value = 0;
  while (c > 0 && value < 9 && Is(c - 1, kDecimal)) --c, ++value;
  return value;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  for (const char32_t c : Decode(text)) AppendMapped(c, &CaseRow::upper, out);
  return out;
}

std::string ToLower(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  for (size_t i = 0; i < decoded.size(); ++i) AppendLower(decoded, i, out);
  return out;
}

std::string ToTitle(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (in_word) {
      AppendLower(decoded, i, out);
    } else {
      AppendMapped(decoded[i], &CaseRow::title, out);
    }
    in_word = IsCased(decoded[i]);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  if (!decoded.empty()) AppendMapped(decoded[0], &CaseRow::title, out);
  for (size_t i = 1; i < decoded.size(); ++i) AppendLower(decoded, i, out);
  return out;
}

std::string SwapCase(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (Is(decoded[i], kUpper)) {
      AppendLower(decoded, i, out);
    } else if (Is(decoded[i], kLower)) {
      AppendMapped(decoded[i], &CaseRow::upper, out);
    } else {
      AppendUtf8(decoded[i], out);
    }
  }
  return out;
}

}  // namespace kvern::text::jinja
