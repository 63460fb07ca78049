// Byte-level BPE ("gpt2"). Tokens and merges spell bytes with printable characters; everything here
// is undone to bytes once, at creation.
#include <array>
#include <functional>
#include <unordered_map>
#include <utility>

#include "text/merge_table.h"
#include "text/pre_tokenizer.h"
#include "text/text_model.h"
#include "text/utf8.h"

namespace kvern::text {
namespace {

// The alphabet of GPT-2: a printable Latin-1 character spells its own byte; the other bytes, in
// order, are spelled by the code points from U+0100 on.
constexpr size_t kAlphabetEnd = 0x144;

bool SpellsItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<std::optional<uint8_t>, kAlphabetEnd> MakeAlphabet() {
  std::array<std::optional<uint8_t>, kAlphabetEnd> alphabet;
  size_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    alphabet[SpellsItself(byte) ? byte : next++] = static_cast<uint8_t>(byte);
  }
  return alphabet;
}

// The bytes that `text` spells, or nothing if it uses another character.
std::optional<std::string> Unspell(std::string_view text) {
  static const auto kAlphabet = MakeAlphabet();
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (c >= kAlphabetEnd || !kAlphabet[c]) return std::nullopt;
    bytes.push_back(static_cast<char>(*kAlphabet[c]));
  }
  return bytes;
}

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using SymbolOfBytes = std::unordered_map<std::string, Symbol, Hash, std::equal_to<>>;

class BpeModel : public TextModel {
 public:
  BpeModel(const Vocab& vocab, const PreTokenizer& pre_tokenizer)
      : pre_tokenizer_(pre_tokenizer), merges_(vocab.merges.size()) {
    num_tokens_ = vocab.tokens.size();
    for (size_t i = 0; i < num_tokens_; ++i) {
      if (!IsTextToken(vocab.tokens[i].type)) continue;
      if (auto bytes = Unspell(vocab.tokens[i].text)) {
        symbols_.emplace(std::move(*bytes), static_cast<Symbol>(i));
      }
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      symbol_of_byte_[byte] = FindOrAddSymbol(std::string(1, static_cast<char>(byte)));
    }
    for (size_t i = 0; i < vocab.merges.size(); ++i) AddMerge(vocab.merges[i], i);
    if (!pre_tokenizer.whole_words) symbols_ = {};
  }

  size_t Encode(std::string_view text, bool /*after_special*/,
                std::vector<TokenId>& out) const override {
    // Words are cut between code points, so broken UTF-8 is repaired first.
    std::u32string code_points;
    std::string repaired;
    for (size_t i = 0; i < text.size();) {
      code_points.push_back(NextCodePoint(text, i));
      AppendUtf8(code_points.back(), repaired);
    }
    WordEncoder encoder{*this, {}, {}, 0};
    size_t code_point = 0;
    size_t begin = 0;
    for (const size_t word_end : SplitWords(pre_tokenizer_, code_points)) {
      size_t end = begin;
      for (; code_point < word_end; ++code_point) end += EncodedLength(code_points[code_point]);
      encoder.Encode(std::string_view(repaired).substr(begin, end - begin), out);
      begin = end;
    }
    return encoder.num_lookups;
  }

  std::string BytesOf(std::string_view token_text) const override {
    // A token that the alphabet cannot spell was meant as the text that it is.
    return Unspell(token_text).value_or(std::string(token_text));
  }

 private:
  struct WordEncoder {
    const BpeModel& model;
    PairMerger<Symbol> merger;
    std::vector<Symbol> symbols;
    size_t num_lookups;

    void Encode(std::string_view word, std::vector<TokenId>& out) {
      if (model.pre_tokenizer_.whole_words) {
        const auto token = model.symbols_.find(word);
        if (token != model.symbols_.end() && token->second < model.num_tokens_) {
          out.push_back(TokenId(token->second));
          return;
        }
      }
      symbols.clear();
      for (const char c : word) symbols.push_back(model.symbol_of_byte_[static_cast<uint8_t>(c)]);
      num_lookups += merger.Run(
          symbols, [this](Symbol left, Symbol right) { return model.merges_.Lookup(left, right); });
      for (const Symbol symbol : symbols) model.Emit(symbol, out);
    }
  };

  static size_t EncodedLength(char32_t c) {
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  }

  Symbol FindOrAddSymbol(const std::string& bytes) {
    const auto found = symbols_.find(bytes);
    if (found != symbols_.end()) return found->second;
    const auto symbol = static_cast<Symbol>(num_tokens_ + tokenless_.size());
    tokenless_.push_back(bytes);
    symbols_.emplace(bytes, symbol);
    return symbol;
  }

  void AddMerge(std::string_view merge, size_t rank) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) return;
    const auto left = Unspell(merge.substr(0, space));
    const auto right = Unspell(merge.substr(space + 1));
    if (!left || !right) return;  // no text is spelled like this
    merges_.Add(FindOrAddSymbol(*left), FindOrAddSymbol(*right), static_cast<uint32_t>(rank),
                FindOrAddSymbol(*left + *right));
  }

  // A symbol without a token falls back to its bytes; bytes that are not printable ASCII have no
  // fallback and are dropped, as in llama.cpp.
  void Emit(Symbol symbol, std::vector<TokenId>& out) const {
    if (symbol < num_tokens_) {
      out.push_back(TokenId(symbol));
      return;
    }
    for (const char c : tokenless_[symbol - num_tokens_]) {
      const auto byte = static_cast<uint8_t>(c);
      const Symbol fallback = symbol_of_byte_[byte];
      if (byte < 0x80 && SpellsItself(byte) && fallback < num_tokens_) {
        out.push_back(TokenId(fallback));
      }
    }
  }

  const PreTokenizer& pre_tokenizer_;
  size_t num_tokens_ = 0;
  // Symbols below num_tokens_ are tokens; the others name bytes that are no token.
  std::vector<std::string> tokenless_;
  SymbolOfBytes symbols_;  // empty after creation, unless words are looked up whole
  std::array<Symbol, 256> symbol_of_byte_{};
  MergeTable merges_;
};

}  // namespace

Result<std::unique_ptr<TextModel>> CreateBpeModel(const Vocab& vocab) {
  const PreTokenizer* pre_tokenizer = FindPreTokenizer(vocab.pre_tokenizer);
  if (pre_tokenizer == nullptr) {
    return Errorf(ErrorCode::kUnsupported,
                  "tokenizer.ggml.pre is '{}', which Kvern does not know; it knows {}",
                  vocab.pre_tokenizer, PreTokenizerNames());
  }
  return std::unique_ptr<TextModel>(std::make_unique<BpeModel>(vocab, *pre_tokenizer));
}

}  // namespace kvern::text
