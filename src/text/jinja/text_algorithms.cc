#include "text/jinja/text_algorithms.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace kvern::text::jinja {

std::vector<std::string> SplitSpace(std::string_view text, int64_t limit, bool from_right) {
  std::u32string decoded = Decode(text);
  if (from_right) std::reverse(decoded.begin(), decoded.end());
  std::vector<std::u32string> words;
  size_t at = 0;
  while (true) {
    while (at < decoded.size() && Is(decoded[at], kSpace)) ++at;
    if (at == decoded.size()) break;
    if (limit >= 0 && words.size() == static_cast<size_t>(limit)) {
      words.push_back(decoded.substr(at));
      break;
    }
    const size_t start = at;
    while (at < decoded.size() && !Is(decoded[at], kSpace)) ++at;
    words.push_back(decoded.substr(start, at - start));
  }
  std::vector<std::string> out;
  for (std::u32string& word : words) {
    if (from_right) std::reverse(word.begin(), word.end());
    out.push_back(Encode(word));
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SplitOn(std::string_view text, std::string_view separator, int64_t limit,
                                 bool from_right) {
  std::vector<std::string> pieces;
  while (limit < 0 || pieces.size() < static_cast<size_t>(limit)) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const size_t after = at + separator.size();
    pieces.emplace_back(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
  }
  pieces.emplace_back(text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  const std::u32string decoded = Decode(text);
  std::vector<std::string> lines;
  size_t start = 0;
  while (start < decoded.size()) {
    size_t end = start;
    while (end < decoded.size() && !Is(decoded[end], kLineBreak)) ++end;
    size_t next = std::min(end + 1, decoded.size());
    if (end + 1 < decoded.size() && decoded[end] == '\r' && decoded[end + 1] == '\n') ++next;
    const size_t stop = keep_ends ? next : end;
    lines.push_back(Encode(std::u32string_view(decoded).substr(start, stop - start)));
    start = next;
  }
  return lines;
}

std::string Strip(std::string_view text, std::optional<std::string_view> chars, StripSide side) {
  const std::u32string decoded = Decode(text);
  const std::u32string set = Decode(chars.value_or(""));
  const auto strips = [&](char32_t c) {
    return chars ? set.find(c) != std::u32string::npos : Is(c, kSpace);
  };
  size_t start = 0;
  size_t end = decoded.size();
  if (side != StripSide::kRight) {
    while (start < end && strips(decoded[start])) ++start;
  }
  if (side != StripSide::kLeft) {
    while (end > start && strips(decoded[end - 1])) --end;
  }
  return Encode(std::u32string_view(decoded).substr(start, end - start));
}

Result<std::string> ReplaceAll(Runtime& runtime, std::string_view text, std::string_view old,
                               std::string_view replacement, int64_t count) {
  std::string out;
  if (old.empty()) {
    // Python inserts the replacement before every character and at the end.
    for (const char32_t c : Decode(text)) {
      if (count != 0) {
        KVERN_RETURN_IF_ERROR(runtime.Charge(replacement.size()));
        out += replacement;
        --count;
      }
      AppendUtf8(c, out);
    }
    if (count != 0) out += replacement;
    KVERN_RETURN_IF_ERROR(runtime.Charge(text.size()));
    return out;
  }
  KVERN_RETURN_IF_ERROR(runtime.Charge(text.size()));
  while (count != 0) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    KVERN_RETURN_IF_ERROR(runtime.Charge(replacement.size()));
    out += text.substr(0, at);
    out += replacement;
    text.remove_prefix(at + old.size());
    --count;
  }
  out += text;
  return out;
}

}  // namespace kvern::text::jinja
