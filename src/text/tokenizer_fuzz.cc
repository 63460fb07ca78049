// Any bytes through encoding and decoding, on tiny vocabularies of each kind.
//
// The first byte chooses vocabulary and options; the rest is the text.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab_test_util.h"

namespace kvern::text {
namespace {

void AddSpecials(Vocab& vocab) {
  testing::AddToken(vocab, "<|im_end|>", TokenType::kControl);
  testing::AddToken(vocab, "<|im", TokenType::kUserDefined);
  testing::AddToken(vocab, "\n\n", TokenType::kUserDefined);
}

// All 256 bytes have a token, so no text is lost.
Vocab LosslessBpe(std::string_view pre_tokenizer) {
  Vocab vocab = testing::TinyBpe({"a b", "Ġ a", "ab c", "1 2", "Ġ Ġ", "' s", "Ã ©", "abc abc"},
                                 std::string(pre_tokenizer));
  vocab.add_bos = false;
  for (uint32_t c = 0xA1; c < 0x144; ++c) {
    std::string text;
    AppendUtf8(c, text);
    if (c != 0xAD && text != "Ġ" && text != "Ċ") testing::AddToken(vocab, text);
  }
  AddSpecials(vocab);
  return vocab;
}

std::vector<std::unique_ptr<Tokenizer>> MakeTokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  const auto add = [&](Vocab vocab) {
    auto tokenizer = Tokenizer::Create(std::move(vocab));
    CHECK(tokenizer.ok());
    tokenizers.push_back(std::move(tokenizer).value());
  };
  for (const PreTokenizer& row : PreTokenizers()) add(LosslessBpe(row.names[0]));
  Vocab pieces = testing::TinySentencePiece(
      {{"▁", -1}, {"a", -2}, {"▁a", -3}, {"ab", -2.5f}, {"é", -4}, {"▁▁", -0.5f}, {"aab", 1}});
  AddSpecials(pieces);
  pieces.strip_after_special = true;
  add(pieces);
  pieces.strip_after_special = false;
  pieces.add_space_prefix = false;
  add(pieces);
  return tokenizers;
}

std::string Repaired(std::string_view text) {
  std::string repaired;
  for (size_t i = 0; i < text.size();) AppendUtf8(NextCodePoint(text, i), repaired);
  return repaired;
}

bool IsValid(std::string_view text) {
  Utf8Stream stream;
  return stream.Push(text) == text && stream.Flush().empty();
}

void Check(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  const std::vector<TokenId> ids = tokenizer.Encode(text, options);
  for (const TokenId id : ids) CHECK(static_cast<size_t>(id) < tokenizer.size());

  Detokenizer detokenizer(tokenizer, /*render_special=*/true);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.Push(id);
    CHECK(IsValid(part));
    streamed += part;
  }
  streamed += detokenizer.Flush();
  const std::string decoded = tokenizer.Decode(ids, /*render_special=*/true);
  if (IsValid(text) && tokenizer.vocab().kind == VocabKind::kByteLevelBpe) {
    CHECK(streamed == decoded);
  }

  // Byte-level BPE repairs text first. SentencePiece spells spaces as ▁, puts more behind special
  // tokens, and may tear one apart behind a broken character.
  if (options.add_special || options.parse_special) return;
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (tokenizer.vocab().kind == VocabKind::kByteLevelBpe) {
    CHECK(Repaired(decoded) == Repaired(text));
  } else if (IsValid(text) && !has("▁") && !has("<|im") && !has("\n\n")) {
    CHECK(decoded == text);
  }
}

}  // namespace
}  // namespace kvern::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kTokenizers = kvern::text::MakeTokenizers();
  if (size == 0) return 0;
  const size_t choice = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  kvern::text::Check(*kTokenizers[choice / 4 % kTokenizers.size()], text,
                     {.add_special = (choice & 1) != 0, .parse_special = (choice & 2) != 0});
  return 0;
}
