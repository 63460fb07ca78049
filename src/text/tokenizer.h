// Tokenizer: text to token ids and back, with exactly the ids that llama.cpp gives.
//
// Special tokens are recognised in text only where the caller allows it, so that what a user writes
// cannot pretend to be structure; user-defined tokens are always recognised. What broken UTF-8
// becomes is stated in docs/tokenizers.md.
//
// Immutable after creation: safe from any thread. Encode takes O(n log n) time for any text.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/ids.h"
#include "text/vocab.h"

namespace kvern::text {

struct EncodeOptions {
  bool add_special = false;    // begin and end as the model wants it: BOS, EOS
  bool parse_special = false;  // "<|im_end|>" is the token of that name, not text
  // Taken out of the text after special tokens were found: one that is broken up by it is text
  // (see MarkSpecial). Empty: none.
  std::string_view mark = {};
};

class Tokenizer {
 public:
  // Errors: kUnsupported (an unknown pre-tokenizer), kCorrupt (ids that do not exist, tokens that
  // occur twice, …). Messages name the metadata key.
  static Result<std::unique_ptr<Tokenizer>> Create(Vocab vocab);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // REQUIRES: text.size() < 1 GiB.
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const;

  // `text` with `mark` inside everything in it that would be parsed as a special token, so that it
  // stays text wherever it is put, when encoded with the same mark.
  // REQUIRES: `text` does not contain `mark`.
  std::string MarkSpecial(std::string_view text, std::string_view mark) const;

  // The bytes that a token stands for, which need not be whole characters. Control and unknown
  // tokens are nothing unless `render_special`. REQUIRES: id is in the vocabulary.
  std::string TokenText(TokenId id, bool render_special) const;

  // The texts of all tokens, in a row. A space that Encode put in front is taken away again, so
  // that a text survives the way there and back. For text that arrives token by token, see
  // text/detokenizer.h.
  std::string Decode(std::span<const TokenId> ids, bool render_special) const;

  // Whether generation stops when the model says this.
  bool IsEndOfGeneration(TokenId id) const;
  std::span<const TokenId> end_of_generation() const;  // ascending

  // The token that the vocabulary spells exactly like this.
  std::optional<TokenId> FindToken(std::string_view text) const;

  size_t size() const { return vocab().tokens.size(); }
  std::optional<TokenId> bos() const { return vocab().bos; }
  std::optional<TokenId> eos() const { return vocab().eos; }
  std::optional<TokenId> eot() const { return vocab().eot; }

  // What `add_special` adds.
  bool adds_bos() const;
  bool adds_eos() const;

  // As given to Create, with roles and types completed (text/special_tokens.h), without merges.
  const Vocab& vocab() const;

 private:
  class Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::text
