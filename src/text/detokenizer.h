// Detokenizer: the text of tokens as they arrive one by one, for streaming.
//
// A character may be spread over several tokens; it appears when it is complete, so every string
// that comes out is valid UTF-8. Bytes that cannot become a character come out as U+FFFD.
//
// One per reply; not thread-safe. The tokenizer must outlive it.
#pragma once

#include <string>

#include "kvern/ids.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace kvern::text {

class Detokenizer {
 public:
  // `render_special`: as for Tokenizer::TokenText.
  explicit Detokenizer(const Tokenizer& tokenizer, bool render_special = false)
      : tokenizer_(tokenizer), render_special_(render_special) {}

  // The text that is complete now, possibly none.
  std::string Push(TokenId id) { return stream_.Push(tokenizer_.TokenText(id, render_special_)); }

  // The end of the reply: U+FFFD for a character that stayed incomplete, otherwise nothing. The
  // detokenizer is then like new.
  std::string Flush() { return stream_.Flush(); }

 private:
  const Tokenizer& tokenizer_;
  const bool render_special_;
  Utf8Stream stream_;
};

}  // namespace kvern::text
