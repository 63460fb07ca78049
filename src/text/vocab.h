// Vocab: what a model file says about its tokenizer. Plain data; text/tokenizer.h makes it work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvern/ids.h"

namespace kvern::text {

enum class VocabKind {
  kByteLevelBpe,   // "gpt2": ranked merges; bytes are spelled with printable characters
  kSentencePiece,  // "llama": scored pieces, spaces spelled ▁, byte fallback
};

// Values are those of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // structure, not text: never comes from ordinary text
  kUserDefined = 4,  // always recognised, before anything else
  kUnused = 5,       // renders as nothing
  kByte = 6,         // "<0x0A>"
};

struct VocabToken {
  std::string text;  // as the file spells it
  float score = 0;   // kSentencePiece: higher merges first
  TokenType type = TokenType::kNormal;
};

struct Vocab {
  VocabKind kind = VocabKind::kByteLevelBpe;
  std::string pre_tokenizer = "default";  // kByteLevelBpe: a name in text/pre_tokenizer.h
  std::vector<VocabToken> tokens;         // the index is the TokenId
  std::vector<std::string> merges;        // kByteLevelBpe: "left right", best first

  std::optional<TokenId> bos, eos, unknown, padding, separator, mask;
  std::optional<TokenId> eot, eom;  // end of turn, of message
  std::optional<TokenId> fim_prefix, fim_suffix, fim_middle, fim_padding, fim_repo, fim_separator;

  // Absent: what is usual for the kind and the pre-tokenizer.
  std::optional<bool> add_bos, add_eos, add_space_prefix;

  // White space behind a special token is not text (Phi-3).
  bool strip_after_special = false;
};

}  // namespace kvern::text
