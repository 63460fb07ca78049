#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/pre_tokenizer.h"
#include "text/special_matcher.h"
#include "text/special_tokens.h"
#include "text/text_model.h"

namespace kvern::text {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

using IdOfText = std::unordered_map<std::string_view, TokenId>;

bool IsSpecial(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

// Names the tokens that have no text and indexes all. Errors: kCorrupt.
Result<IdOfText> IndexTokens(Vocab& vocab) {
  if (vocab.tokens.empty()) return Errorf(ErrorCode::kCorrupt, "tokenizer.ggml.tokens is empty");
  IdOfText ids;
  ids.reserve(vocab.tokens.size());
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    VocabToken& token = vocab.tokens[i];
    if (token.text.empty()) token.text = fmt::format("[EMPTY_{}]", i);
    const auto [previous, is_new] = ids.emplace(token.text, static_cast<TokenId>(i));
    if (!is_new) {
      return Errorf(ErrorCode::kCorrupt, "tokenizer.ggml.tokens: entry {} repeats entry {}", i,
                    static_cast<uint32_t>(previous->second));
    }
    if (token.type == TokenType::kByte && !ByteTokenValue(token.text)) {
      return Errorf(ErrorCode::kCorrupt,
                    "tokenizer.ggml.tokens: entry {} is of type byte, but not named like <0x0A>",
                    i);
    }
  }
  return ids;
}

Status CheckSpecialIds(const Vocab& vocab) {
  for (const auto& [key, role] : kSpecialIdKeys) {
    const auto& id = vocab.*role;
    if (id && static_cast<size_t>(*id) >= vocab.tokens.size()) {
      return Errorf(ErrorCode::kCorrupt, "{} is {}, but tokenizer.ggml.tokens has {} entries", key,
                    static_cast<uint32_t>(*id), vocab.tokens.size());
    }
  }
  return {};
}

// Fills what the vocabulary leaves to its kind. Errors: kCorrupt.
Status ResolveAdded(Vocab& vocab) {
  const bool is_bpe = vocab.kind == VocabKind::kByteLevelBpe;
  const PreTokenizer* row = is_bpe ? FindPreTokenizer(vocab.pre_tokenizer) : nullptr;
  vocab.add_bos = vocab.add_bos.value_or(is_bpe ? row != nullptr && row->add_bos : true);
  vocab.add_eos = vocab.add_eos.value_or(false);
  vocab.add_space_prefix = !is_bpe && vocab.add_space_prefix.value_or(true);
  if (*vocab.add_bos && !vocab.bos) {
    return Errorf(ErrorCode::kCorrupt,
                  "tokenizer.ggml.bos_token_id is missing, but every text begins with it");
  }
  if (*vocab.add_eos && !vocab.eos) {
    return Errorf(ErrorCode::kCorrupt,
                  "tokenizer.ggml.eos_token_id is missing, but every text ends with it");
  }
  return {};
}

// Phi-3 strips behind all special tokens but these three.
bool StripsAfter(const Vocab& vocab, std::string_view text) {
  return vocab.strip_after_special && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
}

std::string WithoutMark(std::string_view text, std::string_view mark) {
  std::string result;
  while (!mark.empty()) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) break;
    result.append(text.substr(0, at));
    text.remove_prefix(at + mark.size());
  }
  return result.append(text);
}

SpecialMatcher MakeMatcher(const Vocab& vocab, bool parse_special) {
  std::vector<SpecialMatcher::Special> specials;
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    const auto& [text, score, type] = vocab.tokens[i];
    if (type == TokenType::kUserDefined || (parse_special && IsSpecial(type))) {
      specials.push_back({text, static_cast<TokenId>(i), StripsAfter(vocab, text)});
    }
  }
  return SpecialMatcher(std::move(specials));
}

}  // namespace

class Tokenizer::Impl {
 public:
  Impl(Vocab vocab, IdOfText ids, std::vector<TokenId> ends, std::unique_ptr<TextModel> model)
      : vocab_(std::move(vocab)),
        ids_(std::move(ids)),
        ends_(std::move(ends)),
        model_(std::move(model)),
        user_defined_(MakeMatcher(vocab_, /*parse_special=*/false)),
        all_special_(MakeMatcher(vocab_, /*parse_special=*/true)) {}

  void EncodeText(std::string_view text, const EncodeOptions& options,
                  std::vector<TokenId>& out) const {
    bool after_special = true;
    const auto encode = [&](std::string_view ordinary) {
      const std::string unmarked = WithoutMark(ordinary, options.mark);
      if (unmarked.empty()) return;
      model_->Encode(unmarked, after_special, out);
      after_special = false;
    };
    size_t begin = 0;
    for (const auto& match : (options.parse_special ? all_special_ : user_defined_).Find(text)) {
      encode(text.substr(begin, match.begin - begin));
      out.push_back(match.id);
      after_special = true;
      begin = match.end;
    }
    encode(text.substr(begin));
  }

  std::string MarkSpecial(std::string text, std::string_view mark) const {
    // A broken token may have a shorter one inside: again, until there is none.
    while (true) {
      std::string marked;
      size_t begin = 0;
      for (const auto& match : all_special_.Find(text)) {
        if (vocab_.tokens[static_cast<size_t>(match.id)].type == TokenType::kUserDefined) continue;
        // Behind the first character, so that the rest stays whole characters.
        size_t inside = match.begin + 1;
        while (inside < match.end && (static_cast<uint8_t>(text[inside]) & 0xC0) == 0x80) ++inside;
        if (inside == match.end) continue;  // one character cannot be broken
        marked.append(text, begin, inside - begin).append(mark);
        begin = inside;
      }
      if (begin == 0) return text;
      text = marked.append(text, begin);
    }
  }

  std::string TokenText(TokenId id, bool render_special) const {
    const VocabToken& token = vocab_.tokens[static_cast<size_t>(id)];
    switch (token.type) {
      case TokenType::kControl:
      case TokenType::kUnknown:
        return render_special ? token.text : "";
      case TokenType::kUserDefined:
        return token.text;
      case TokenType::kUnused:
        return "";
      case TokenType::kByte:
        return std::string(1, static_cast<char>(*ByteTokenValue(token.text)));
      case TokenType::kNormal:
        break;
    }
    return model_->BytesOf(token.text);
  }

  const Vocab& vocab() const { return vocab_; }
  const std::vector<TokenId>& ends() const { return ends_; }
  const IdOfText& ids() const { return ids_; }

 private:
  const Vocab vocab_;
  const IdOfText ids_;  // views of vocab_
  const std::vector<TokenId> ends_;
  const std::unique_ptr<TextModel> model_;
  const SpecialMatcher user_defined_;
  const SpecialMatcher all_special_;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(Vocab vocab) {
  KVERN_ASSIGN_OR_RETURN(IdOfText ids, IndexTokens(vocab));
  KVERN_RETURN_IF_ERROR(CheckSpecialIds(vocab));
  KVERN_RETURN_IF_ERROR(ResolveAdded(vocab));
  std::vector<TokenId> ends = ResolveSpecialTokens(vocab);
  KVERN_ASSIGN_OR_RETURN(std::unique_ptr<TextModel> model, vocab.kind == VocabKind::kByteLevelBpe
                                                               ? CreateBpeModel(vocab)
                                                               : CreateSentencePieceModel(vocab));
  vocab.merges = {};
  // Moving a vector keeps its elements in place, so the views of the tokens stay good.
  return std::unique_ptr<Tokenizer>(new Tokenizer(
      std::make_unique<Impl>(std::move(vocab), std::move(ids), std::move(ends), std::move(model))));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  CHECK(text.size() < kMaxTextBytes);
  std::vector<TokenId> out;
  if (options.add_special && adds_bos()) out.push_back(*bos());
  impl_->EncodeText(text, options, out);
  if (options.add_special && adds_eos()) out.push_back(*eos());
  return out;
}

std::string Tokenizer::MarkSpecial(std::string_view text, std::string_view mark) const {
  CHECK(!mark.empty() && text.find(mark) == std::string_view::npos);
  return impl_->MarkSpecial(std::string(text), mark);
}

std::string Tokenizer::TokenText(TokenId id, bool render_special) const {
  CHECK(static_cast<size_t>(id) < size());
  return impl_->TokenText(id, render_special);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool render_special) const {
  std::string text;
  bool strips_space = *vocab().add_space_prefix;
  for (const TokenId id : ids) {
    const std::string token = TokenText(id, render_special);
    const bool strip = strips_space && token.starts_with(' ');
    text.append(token, strip ? 1 : 0);
    strips_space = strips_space && id == bos();
  }
  return text;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return std::ranges::binary_search(impl_->ends(), id);
}

std::span<const TokenId> Tokenizer::end_of_generation() const { return impl_->ends(); }

std::optional<TokenId> Tokenizer::FindToken(std::string_view text) const {
  const auto found = impl_->ids().find(text);
  if (found == impl_->ids().end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::adds_bos() const { return *vocab().add_bos; }
bool Tokenizer::adds_eos() const { return *vocab().add_eos; }
const Vocab& Tokenizer::vocab() const { return impl_->vocab(); }

}  // namespace kvern::text
