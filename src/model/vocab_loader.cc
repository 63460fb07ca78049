#include "model/vocab_loader.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/special_tokens.h"

namespace kvern::model {
namespace {

using text::TokenType;
using text::Vocab;
using text::VocabKind;

Result<VocabKind> LoadKind(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(const std::string_view name, gguf.GetString("tokenizer.ggml.model"));
  if (name == "gpt2") return VocabKind::kByteLevelBpe;
  if (name == "llama") return VocabKind::kSentencePiece;
  return Errorf(ErrorCode::kUnsupported,
                "{}: tokenizer.ggml.model is '{}', which Kvern does not know; it knows gpt2 "
                "(byte-level BPE) and llama (SentencePiece)",
                gguf.path(), name);
}

Status CheckCount(const Gguf& gguf, std::string_view key, size_t count, size_t num_tokens) {
  if (count >= num_tokens) return {};
  return Errorf(ErrorCode::kCorrupt, "{}: {} has {} entries, but tokenizer.ggml.tokens has {}",
                gguf.path(), key, count, num_tokens);
}

// Numbers that are no type render as nothing and match nothing special.
TokenType TypeOf(int64_t value) {
  if (value < 1 || value > static_cast<int64_t>(TokenType::kByte)) return TokenType::kUnused;
  return static_cast<TokenType>(value);
}

Status LoadTokens(const Gguf& gguf, Vocab& vocab) {
  KVERN_ASSIGN_OR_RETURN(const auto texts, gguf.GetStrings("tokenizer.ggml.tokens"));
  vocab.tokens.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) vocab.tokens[i].text = texts[i];

  constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  KVERN_ASSIGN_OR_RETURN(const auto types, gguf.FindInts(kTypes));
  if (types) {
    KVERN_RETURN_IF_ERROR(CheckCount(gguf, kTypes, types->size(), texts.size()));
    for (size_t i = 0; i < texts.size(); ++i) vocab.tokens[i].type = TypeOf((*types)[i]);
  }
  if (vocab.kind != VocabKind::kSentencePiece) return {};

  constexpr std::string_view kScores = "tokenizer.ggml.scores";
  KVERN_ASSIGN_OR_RETURN(const auto scores, gguf.FindFloats(kScores));
  if (scores) {
    KVERN_RETURN_IF_ERROR(CheckCount(gguf, kScores, scores->size(), texts.size()));
    for (size_t i = 0; i < texts.size(); ++i) vocab.tokens[i].score = (*scores)[i];
  }
  return {};
}

Status LoadMerges(const Gguf& gguf, Vocab& vocab) {
  KVERN_ASSIGN_OR_RETURN(const auto merges, gguf.GetStrings("tokenizer.ggml.merges"));
  vocab.merges.assign(merges.begin(), merges.end());
  KVERN_ASSIGN_OR_RETURN(const auto name, gguf.FindString("tokenizer.ggml.pre"));
  if (name) vocab.pre_tokenizer = *name;
  return {};
}

Status LoadSpecialIds(const Gguf& gguf, Vocab& vocab) {
  if (vocab.kind == VocabKind::kSentencePiece) {
    vocab.unknown = TokenId(0);
    vocab.bos = TokenId(1);
    vocab.eos = TokenId(2);
  }
  for (const auto& [key, id] : text::kSpecialIdKeys) {
    KVERN_ASSIGN_OR_RETURN(const auto value, gguf.FindUint(key));
    if (!value) continue;
    if (*value >= vocab.tokens.size()) {
      return Errorf(ErrorCode::kCorrupt, "{}: {} is {}, but tokenizer.ggml.tokens has {} entries",
                    gguf.path(), key, *value, vocab.tokens.size());
    }
    vocab.*id = static_cast<TokenId>(*value);
  }
  return {};
}

// Phi-3 says nowhere but in its name that white space behind special tokens is not text.
Result<bool> IsPhi3(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(const auto name, gguf.FindString("general.name"));
  std::string lower(name.value_or(""));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

}  // namespace

Result<Vocab> LoadVocab(const Gguf& gguf) {
  Vocab vocab;
  KVERN_ASSIGN_OR_RETURN(vocab.kind, LoadKind(gguf));
  KVERN_RETURN_IF_ERROR(LoadTokens(gguf, vocab));
  if (vocab.kind == VocabKind::kByteLevelBpe) KVERN_RETURN_IF_ERROR(LoadMerges(gguf, vocab));
  KVERN_RETURN_IF_ERROR(LoadSpecialIds(gguf, vocab));
  KVERN_ASSIGN_OR_RETURN(vocab.add_bos, gguf.FindBool("tokenizer.ggml.add_bos_token"));
  KVERN_ASSIGN_OR_RETURN(vocab.add_eos, gguf.FindBool("tokenizer.ggml.add_eos_token"));
  KVERN_ASSIGN_OR_RETURN(vocab.add_space_prefix, gguf.FindBool("tokenizer.ggml.add_space_prefix"));
  KVERN_ASSIGN_OR_RETURN(vocab.strip_after_special, IsPhi3(gguf));
  return vocab;
}

Result<std::unique_ptr<text::Tokenizer>> LoadTokenizer(const Gguf& gguf) {
  KVERN_ASSIGN_OR_RETURN(Vocab vocab, LoadVocab(gguf));
  auto tokenizer = text::Tokenizer::Create(std::move(vocab));
  if (!tokenizer.ok()) {
    return Errorf(tokenizer.error().code, "{}: {}", gguf.path(), tokenizer.error().message);
  }
  return std::move(tokenizer).value();
}

}  // namespace kvern::model
