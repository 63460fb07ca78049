// SentencePiece BPE ("llama"): scored pieces, spaces spelled ▁, bytes for what has no piece.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "text/pair_merge.h"
#include "text/text_model.h"

namespace kvern::text {
namespace {

constexpr std::string_view kSpace = "\u2581";  // ▁

// Bytes of the character that `lead` begins, as far as the lead byte tells.
size_t CharacterLength(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0xC0) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::string Replace(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  for (size_t begin = 0;;) {
    const size_t found = text.find(what, begin);
    out.append(text.substr(begin, found - begin));
    if (found == std::string_view::npos) return out;
    out.append(with);
    begin = found + what.size();
  }
}

// Orders like −score: the best score is the lowest number. REQUIRES: score is not NaN.
uint32_t RankOfScore(float score) {
  const auto bits = std::bit_cast<uint32_t>(0.0f - score);  // both zeros are +0
  constexpr uint32_t kSign = uint32_t{1} << 31;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

class SentencePieceModel : public TextModel {
 public:
  explicit SentencePieceModel(const Vocab& vocab)
      : add_space_prefix_(vocab.add_space_prefix.value_or(true)) {
    byte_tokens_.fill(vocab.unknown);
    pieces_.reserve(vocab.tokens.size());
    for (size_t i = 0; i < vocab.tokens.size(); ++i) {
      const VocabToken& token = vocab.tokens[i];
      const auto id = static_cast<TokenId>(i);
      if (token.text.size() == 1) byte_tokens_[static_cast<uint8_t>(token.text[0])] = id;
      if (!IsTextToken(token.type)) continue;
      pieces_.emplace(token.text, Piece{id, RankOfScore(token.score)});
      max_piece_bytes_ = std::max(max_piece_bytes_, token.text.size());
    }
    for (size_t i = 0; i < vocab.tokens.size(); ++i) {
      const auto byte = ByteTokenValue(vocab.tokens[i].text);
      if (byte) byte_tokens_[*byte] = static_cast<TokenId>(i);
    }
  }

  size_t Encode(std::string_view text, bool after_special,
                std::vector<TokenId>& out) const override {
    const std::string spelled = (add_space_prefix_ && after_special ? std::string(kSpace) : "") +
                                Replace(text, " ", kSpace);
    std::vector<std::string_view> values;
    for (std::string_view rest = spelled; !rest.empty();) {
      values.push_back(rest.substr(0, CharacterLength(rest.front())));
      rest.remove_prefix(values.back().size());
    }
    PairMerger<std::string_view> merger;
    const size_t num_lookups = merger.Run(
        values,
        [this](std::string_view left, std::string_view right) { return Join(left, right); });
    for (const std::string_view value : values) Emit(value, out);
    return num_lookups;
  }

  std::string BytesOf(std::string_view token_text) const override {
    return Replace(token_text, kSpace, " ");
  }

 private:
  struct Piece {
    TokenId id;
    uint32_t rank;
  };
  using Merge = PairMerge<std::string_view>;

  // The values are neighbours in one text.
  std::optional<Merge> Join(std::string_view left, std::string_view right) const {
    const std::string_view both(left.data(), left.size() + right.size());
    if (both.size() > max_piece_bytes_) return std::nullopt;
    const auto piece = pieces_.find(both);
    if (piece == pieces_.end()) return std::nullopt;
    return Merge{piece->second.rank, both};
  }

  // What has no piece becomes one token per byte.
  void Emit(std::string_view value, std::vector<TokenId>& out) const {
    if (const auto piece = pieces_.find(value); piece != pieces_.end()) {
      out.push_back(piece->second.id);
      return;
    }
    for (const char c : value) {
      if (const auto id = byte_tokens_[static_cast<uint8_t>(c)]) out.push_back(*id);
    }
  }

  const bool add_space_prefix_;
  std::unordered_map<std::string_view, Piece> pieces_;
  size_t max_piece_bytes_ = 0;
  std::array<std::optional<TokenId>, 256> byte_tokens_;
};

}  // namespace

std::optional<uint8_t> ByteTokenValue(std::string_view token_text) {
  if (token_text.size() != 6 || !token_text.starts_with("<0x") || token_text[5] != '>') {
    return std::nullopt;
  }
  uint8_t value = 0;
  for (const char digit : token_text.substr(3, 2)) {
    const size_t nibble = std::string_view("0123456789ABCDEF").find(digit);
    if (nibble == std::string_view::npos) return std::nullopt;
    value = static_cast<uint8_t>(value << 4 | nibble);
  }
  return value;
}

Result<std::unique_ptr<TextModel>> CreateSentencePieceModel(const Vocab& vocab) {
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (std::isnan(vocab.tokens[i].score)) {
      return Errorf(ErrorCode::kCorrupt, "tokenizer.ggml.scores: entry {} is not a number", i);
    }
  }
  return std::unique_ptr<TextModel>(std::make_unique<SentencePieceModel>(vocab));
}

}  // namespace kvern::text
