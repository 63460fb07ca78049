// ReplyText: the text of a completion as its tokens arrive, up to a stop.
//
// Text that may turn out to be the beginning of a stop is held back until that is known.
//
// Not thread-safe. The tokenizer and the stops must outlive it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvern/ids.h"
#include "text/detokenizer.h"

namespace kvern::engine {

class ReplyText {
 public:
  // No tokenizer: there is never any text.
  ReplyText(const text::Tokenizer* tokenizer, std::span<const std::string> stops);

  // Appends to `out` what is certain now. True: a stop has come; what is before it is in `out`.
  bool Push(TokenId token, std::string& out);

  // The end without a stop: appends what was held back.
  void Flush(std::string& out);

 private:
  // Of held_: where the first stop begins; how much of the end may belong to a stop to come.
  std::optional<size_t> FindStop() const;
  size_t NumUncertain() const;

  std::optional<text::Detokenizer> detokenizer_;
  std::span<const std::string> stops_;
  std::string held_;
};

}  // namespace kvern::engine
