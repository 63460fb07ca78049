// Tiny vocabularies for tests.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocab.h"

namespace kvern::text::testing {

inline TokenId AddToken(Vocab& vocab, std::string text, TokenType type = TokenType::kNormal,
                        float score = 0) {
  vocab.tokens.push_back({std::move(text), score, type});
  return TokenId(static_cast<uint32_t>(vocab.tokens.size() - 1));
}

// Byte-level BPE with ids 0…93 for "!"…"~", 94 for the space ("Ġ"), 95 for the newline ("Ċ"), and
// a token for what each of `merges` makes.
inline Vocab TinyBpe(std::vector<std::string> merges, std::string pre_tokenizer = "gpt-2") {
  Vocab vocab;
  vocab.kind = VocabKind::kByteLevelBpe;
  vocab.pre_tokenizer = std::move(pre_tokenizer);
  for (char c = '!'; c <= '~'; ++c) AddToken(vocab, std::string(1, c));
  AddToken(vocab, "Ġ");
  AddToken(vocab, "Ċ");
  for (const std::string& merge : merges) {
    std::string text = merge;
    text.erase(text.find(' '), 1);
    const bool is_new = std::ranges::none_of(
        vocab.tokens, [&](const VocabToken& token) { return token.text == text; });
    if (is_new) AddToken(vocab, text);
  }
  vocab.merges = std::move(merges);
  return vocab;
}

// SentencePiece with <unk>, <s>, </s> as 0, 1, 2, the 256 byte tokens as 3…258, and `pieces`.
inline Vocab TinySentencePiece(const std::vector<std::pair<std::string, float>>& pieces) {
  Vocab vocab;
  vocab.kind = VocabKind::kSentencePiece;
  vocab.unknown = AddToken(vocab, "<unk>", TokenType::kUnknown);
  vocab.bos = AddToken(vocab, "<s>", TokenType::kControl);
  vocab.eos = AddToken(vocab, "</s>", TokenType::kControl);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    AddToken(vocab, std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::kByte);
  }
  for (const auto& [text, score] : pieces) AddToken(vocab, text, TokenType::kNormal, score);
  return vocab;
}

}  // namespace kvern::text::testing
