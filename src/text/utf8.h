// UTF-8 in and out, for text that may be broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvern::text {

inline uint8_t ByteAt(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

inline constexpr char32_t kReplacement = U'\uFFFD';

// The code point that starts at `offset`, which moves behind it. REQUIRES: offset < text.size().
//
// Lenient, as tokenizers are (docs/tokenizers.md): overlong forms and surrogates decode to their
// value. A byte that starts no complete sequence, and each byte of one beyond U+10FFFF, is
// kReplacement.
char32_t NextCodePoint(std::string_view text, size_t& offset);

// REQUIRES: code_point < 0x110000. A surrogate becomes its three bytes.
void AppendUtf8(char32_t code_point, std::string& out);

// Utf8Stream: turns bytes that arrive in pieces into text that is valid UTF-8 at every moment.
//
// A character that is not complete yet is held back, at most three bytes. What cannot become a
// character is replaced by U+FFFD, one for each maximal part of a sequence, as browsers do; here
// overlong forms and surrogates are invalid. Not thread-safe.
class Utf8Stream {
 public:
  // The text that is complete now.
  std::string Push(std::string_view bytes);

  // The end: U+FFFD for a character that never was completed. The stream is then like new.
  std::string Flush();

 private:
  std::string held_;  // a proper prefix of some character, or empty
};

}  // namespace kvern::text
