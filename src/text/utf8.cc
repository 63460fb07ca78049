#include "text/utf8.h"

#include <cstdint>
#include <utility>

namespace kvern::text {
namespace {

bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the sequence that `lead` announces; 0 for a byte that cannot lead one.
size_t SequenceLength(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC0) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF8 ? 4 : 0;
}

// Whether `second` may follow `lead` in well-formed UTF-8 (the Unicode Standard, table 3-7).
bool MayFollow(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return IsContinuation(second);
  }
}

struct Prefix {
  size_t length;   // of the maximal part of a well-formed character at the front, at least 1
  bool complete;   // it is a whole character
  bool may_go_on;  // the text ends before the character does
};

// REQUIRES: text is not empty.
Prefix WellFormedPrefix(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  const size_t length = SequenceLength(lead);
  if (length == 1) return {1, true, false};
  if (length == 0 || lead < 0xC2 || lead > 0xF4) return {1, false, false};
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    const uint8_t next = ByteAt(text, i);
    if (i == 1 ? !MayFollow(lead, next) : !IsContinuation(next)) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  const uint8_t lead = ByteAt(text, offset);
  const size_t length = SequenceLength(lead);
  if (length == 1) {
    ++offset;
    return lead;
  }
  if (length == 0 || text.size() - offset < length) {
    ++offset;
    return kReplacement;
  }
  char32_t code_point = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    const uint8_t next = ByteAt(text, offset + i);
    if (!IsContinuation(next)) {
      ++offset;
      return kReplacement;
    }
    code_point = code_point << 6 | (next & 0x3F);
  }
  if (code_point >= 0x110000) {
    ++offset;
    return kReplacement;
  }
  offset += length;
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto continuation = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    continuation(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code_point >> 12));
    continuation(6);
    continuation(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | code_point >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

std::string Utf8Stream::Push(std::string_view bytes) {
  const std::string all = std::exchange(held_, {}).append(bytes);
  std::string text;
  for (std::string_view rest = all; !rest.empty();) {
    const Prefix prefix = WellFormedPrefix(rest);
    if (prefix.may_go_on) {
      held_ = rest;
      break;
    }
    if (prefix.complete) {
      text.append(rest.substr(0, prefix.length));
    } else {
      AppendUtf8(kReplacement, text);
    }
    rest.remove_prefix(prefix.length);
  }
  return text;
}

std::string Utf8Stream::Flush() {
  std::string text;
  if (!std::exchange(held_, {}).empty()) AppendUtf8(kReplacement, text);
  return text;
}

}  // namespace kvern::text
