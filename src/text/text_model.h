// TextModel: turns ordinary text, free of special tokens, into token ids. One per vocabulary kind.
//
// Immutable: safe from any thread. Control, unknown and byte tokens are never matched by their
// name, so ordinary text cannot spell structure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/ids.h"
#include "text/vocab.h"

namespace kvern::text {

class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the ids of `text`. `after_special`: it begins the input or follows a special token.
  // Returns the number of pair lookups, which is what the time is made of.
  // REQUIRES: text.size() < 1 GiB.
  virtual size_t Encode(std::string_view text, bool after_special,
                        std::vector<TokenId>& out) const = 0;

  // The bytes that a token of type kNormal stands for.
  virtual std::string BytesOf(std::string_view token_text) const = 0;
};

// Whether ordinary text may become a token of this type.
inline bool IsTextToken(TokenType type) {
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kByte;
}

// Models may keep views of `vocab`, which must outlive them unchanged.
// REQUIRES: every special id is below tokens.size(), and no token text is empty or occurs twice.

// Errors: kUnsupported (an unknown pre-tokenizer).
Result<std::unique_ptr<TextModel>> CreateBpeModel(const Vocab& vocab);

// Errors: kCorrupt (a score that is not a number).
Result<std::unique_ptr<TextModel>> CreateSentencePieceModel(const Vocab& vocab);

// The byte that "<0x0A>" names, or nothing if `token_text` is not of that form.
std::optional<uint8_t> ByteTokenValue(std::string_view token_text);

}  // namespace kvern::text
