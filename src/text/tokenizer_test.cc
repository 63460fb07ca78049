#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "text/detokenizer.h"
#include "text/text_model.h"
#include "text/vocab_test_util.h"

namespace kvern::text {
namespace {

using testing::AddToken;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyBpe;
using testing::TinySentencePiece;

std::unique_ptr<Tokenizer> Make(Vocab vocab) {
  auto tokenizer = Tokenizer::Create(std::move(vocab));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

// The spellings of the tokens that `text` becomes.
std::vector<std::string> Spell(const Tokenizer& tokenizer, std::string_view text,
                               EncodeOptions options = {}) {
  std::vector<std::string> texts;
  for (const TokenId id : tokenizer.Encode(text, options)) {
    texts.push_back(tokenizer.vocab().tokens[static_cast<size_t>(id)].text);
  }
  return texts;
}

std::string ErrorOf(Vocab vocab) {
  const auto tokenizer = Tokenizer::Create(std::move(vocab));
  return tokenizer.ok() ? "no error" : tokenizer.error().message;
}

TEST(BpeTokenizer, MergesByRankThenFromTheLeft) {
  const auto tokenizer = Make(TinyBpe({"a b", "b c", "a a", "ab c"}));
  EXPECT_THAT(Spell(*tokenizer, "abc"), ElementsAre("abc"));
  EXPECT_THAT(Spell(*tokenizer, "bcabc"), ElementsAre("bc", "abc"));
  EXPECT_THAT(Spell(*tokenizer, "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(Spell(*tokenizer, ""), ElementsAre());
}

TEST(BpeTokenizer, CutsWordsBeforeItMerges) {
  const auto tokenizer = Make(TinyBpe({"a 1", "Ġ a", "a Ġ"}));
  EXPECT_THAT(Spell(*tokenizer, "a a1"), ElementsAre("a", "Ġa", "1"));
}

TEST(BpeTokenizer, DropsBytesThatHaveNoToken) {
  Vocab vocab = TinyBpe({});
  AddToken(vocab, "ï");  // the bytes of U+FFFD are EF BF BD
  AddToken(vocab, "½");
  const auto tokenizer = Make(std::move(vocab));
  EXPECT_THAT(Spell(*tokenizer, "é"), ElementsAre());
  EXPECT_THAT(Spell(*tokenizer, "a\xFF"), ElementsAre("a", "ï", "½"));
}

TEST(BpeTokenizer, AMergeIntoNoTokenFallsBackToItsBytes) {
  Vocab vocab = TinyBpe({"a b", "ab c"});
  std::erase_if(vocab.tokens, [](const VocabToken& token) { return token.text == "abc"; });
  const auto tokenizer = Make(std::move(vocab));
  EXPECT_THAT(Spell(*tokenizer, "abc"), ElementsAre("a", "b", "c"));
}

TEST(BpeTokenizer, TakesWholeWordsWhereThePreTokenizerSaysSo) {
  for (const auto& [name, expected] :
       {std::pair("llama3", std::vector<std::string>{"xyz"}), {"dbrx", {"x", "y", "z"}}}) {
    Vocab vocab = TinyBpe({}, name);
    AddToken(vocab, "xyz");
    vocab.add_bos = false;
    EXPECT_EQ(Spell(*Make(std::move(vocab)), "xyz"), expected);
  }
}

TEST(SentencePieceTokenizer, MergesByScoreAndSpellsSpaces) {
  const auto tokenizer = Make(TinySentencePiece(
      {{"▁", -10}, {"a", -11}, {"b", -12}, {"▁a", -1}, {"ab", -0.5f}, {"▁ab", -2}}));
  EXPECT_THAT(Spell(*tokenizer, "a"), ElementsAre("▁a"));
  EXPECT_THAT(Spell(*tokenizer, "ab a"), ElementsAre("▁ab", "▁a"));
  EXPECT_THAT(Spell(*tokenizer, "a", {.add_special = true}), ElementsAre("<s>", "▁a"));
  EXPECT_THAT(Spell(*tokenizer, ""), ElementsAre());
}

TEST(SentencePieceTokenizer, FallsBackToBytes) {
  const auto tokenizer = Make(TinySentencePiece({{"▁", -1}}));
  EXPECT_THAT(Spell(*tokenizer, "é\n"), ElementsAre("▁", "<0xC3>", "<0xA9>", "<0x0A>"));
  EXPECT_THAT(Spell(*tokenizer, "\xFF\xE4"), ElementsAre("▁", "<0xFF>", "<0xE4>"));
}

TEST(SentencePieceTokenizer, SpacePrefixFollowsSpecialTokensAndCanBeOff) {
  Vocab vocab = TinySentencePiece({{"▁", -1}, {"x", -2}});
  EXPECT_THAT(Spell(*Make(vocab), "x</s>x", {.parse_special = true}),
              ElementsAre("▁", "x", "</s>", "▁", "x"));
  vocab.add_space_prefix = false;
  EXPECT_THAT(Spell(*Make(vocab), "x"), ElementsAre("x"));
}

TEST(Tokenizer, RecognisesSpecialTokensOnlyWhereAllowed) {
  Vocab vocab = TinyBpe({"e n", "en d"});
  AddToken(vocab, "<end>", TokenType::kControl);
  AddToken(vocab, "{tool}", TokenType::kUserDefined);
  const auto tokenizer = Make(std::move(vocab));
  EXPECT_THAT(Spell(*tokenizer, "a<end>{tool}"), ElementsAre("a", "<", "end", ">", "{tool}"));
  EXPECT_THAT(Spell(*tokenizer, "a<end>{tool}", {.parse_special = true}),
              ElementsAre("a", "<end>", "{tool}"));
}

TEST(Tokenizer, OrdinaryTextCannotSpellAControlToken) {
  // Even where merges or whole words lead to its name.
  Vocab bpe = TinyBpe({"e n", "en d"}, "llama3");
  bpe.add_bos = false;
  bpe.tokens.back().type = TokenType::kControl;  // "end"
  EXPECT_THAT(Spell(*Make(std::move(bpe)), "end"), ElementsAre("e", "n", "d"));

  Vocab pieces = TinySentencePiece({{"<s", 1}, {"<", 0}, {"s", 0}, {">", 0}});
  pieces.add_space_prefix = false;
  EXPECT_THAT(Spell(*Make(std::move(pieces)), "<s>"), ElementsAre("<s", ">"));
}

TEST(Tokenizer, StripsBehindSpecialTokensForPhi3) {
  Vocab vocab = TinySentencePiece({{"▁", -1}, {"x", -2}, {"\n", -3}});
  AddToken(vocab, "<|user|>", TokenType::kControl);
  AddToken(vocab, "<|endoftext|>", TokenType::kControl);
  vocab.strip_after_special = true;
  const auto tokenizer = Make(std::move(vocab));
  EXPECT_THAT(Spell(*tokenizer, "<|user|> \n x<|user|>\n", {.parse_special = true}),
              ElementsAre("<|user|>", "▁", "x", "<|user|>"));
  EXPECT_THAT(Spell(*tokenizer, "<|endoftext|>\n", {.parse_special = true}),
              ElementsAre("<|endoftext|>", "▁", "\n"));
}

TEST(Tokenizer, AddsWhatTheModelWants) {
  Vocab vocab = TinyBpe({});
  vocab.bos = AddToken(vocab, "<bos>", TokenType::kControl);
  vocab.eos = AddToken(vocab, "<eos>", TokenType::kControl);
  EXPECT_THAT(Spell(*Make(vocab), "a", {.add_special = true}), ElementsAre("a"));
  vocab.add_bos = vocab.add_eos = true;
  EXPECT_THAT(Spell(*Make(vocab), "a", {.add_special = true}), ElementsAre("<bos>", "a", "<eos>"));
  EXPECT_THAT(Spell(*Make(vocab), "a"), ElementsAre("a"));
  vocab.add_bos.reset();
  vocab.pre_tokenizer = "llama-bpe";
  EXPECT_TRUE(Make(vocab)->adds_bos());
}

TEST(Tokenizer, RendersTokensAsBytes) {
  Vocab vocab = TinyBpe({"Ġ a"});
  const TokenId latin = AddToken(vocab, "Ã");
  const TokenId unspellable = AddToken(vocab, "\u200D");
  const TokenId control = AddToken(vocab, "<c>", TokenType::kControl);
  const TokenId unused = AddToken(vocab, "<u>", TokenType::kUnused);
  const TokenId byte = AddToken(vocab, "<0x0A>", TokenType::kByte);
  const TokenId nameless = AddToken(vocab, "");
  const auto tokenizer = Make(std::move(vocab));
  EXPECT_EQ(tokenizer->TokenText(*tokenizer->FindToken("Ġa"), false), " a");
  EXPECT_EQ(tokenizer->TokenText(latin, false), "\xC3");
  EXPECT_EQ(tokenizer->TokenText(unspellable, false), "\u200D");
  EXPECT_EQ(tokenizer->TokenText(control, false), "");
  EXPECT_EQ(tokenizer->TokenText(control, true), "<c>");
  EXPECT_EQ(tokenizer->TokenText(unused, true), "");
  EXPECT_EQ(tokenizer->TokenText(byte, false), "\n");
  EXPECT_EQ(tokenizer->vocab().tokens[static_cast<size_t>(nameless)].text, "[EMPTY_102]");
}

TEST(Tokenizer, DecodeUndoesEncode) {
  const auto pieces = Make(TinySentencePiece({{"▁", -1}, {"a", -2}, {"▁a", -3}}));
  for (const std::string_view text : {"a", " a", "  a a", "é a", ""}) {
    for (const bool add_special : {false, true}) {
      const auto ids = pieces->Encode(text, {.add_special = add_special});
      EXPECT_EQ(pieces->Decode(ids, /*render_special=*/false), text);
    }
  }
  const auto bpe = Make(TinyBpe({"Ġ a"}));
  EXPECT_EQ(bpe->Decode(bpe->Encode(" a  a", {}), false), " a  a");
}

// The cost is counted in pair lookups: a text of n bytes has at most 3n, each of constant time.
TEST(TextModel, TextWithoutSpacesStaysLinear) {
  const Vocab bpe = TinyBpe({"a a", "aa aa", "aaaa aaaa", "b a", "a b", "ab ab"});
  const auto bpe_model = CreateBpeModel(bpe);
  const Vocab pieces = TinySentencePiece({{"aa", 1}, {"aaaa", 2}, {"ab", 0}, {"abab", 3}});
  const auto pieces_model = CreateSentencePieceModel(pieces);
  for (const std::string_view unit : {"a", "ab", "aab", "c"}) {
    for (const size_t length : {size_t{10'000}, size_t{300'000}}) {
      std::string text;
      while (text.size() < length) text += unit;
      std::vector<TokenId> ids;
      EXPECT_LE((*bpe_model)->Encode(text, /*after_special=*/false, ids), 3 * text.size());
      EXPECT_LE((*pieces_model)->Encode(text, /*after_special=*/false, ids), 3 * text.size());
    }
  }
}

TEST(Tokenizer, NamesWhatIsWrongWithAVocabulary) {
  EXPECT_THAT(ErrorOf(TinyBpe({}, "klingon")),
              HasSubstr("tokenizer.ggml.pre is 'klingon', which Kvern does not know; it knows "
                        "default, gpt-2, "));
  EXPECT_EQ(ErrorOf(Vocab{}), "tokenizer.ggml.tokens is empty");
  const auto broken = [](const std::function<void(Vocab&)>& breaks) {
    Vocab vocab = TinySentencePiece({{"a", 0}});
    breaks(vocab);
    return ErrorOf(std::move(vocab));
  };
  EXPECT_EQ(broken([](Vocab& v) { AddToken(v, "a"); }),
            "tokenizer.ggml.tokens: entry 260 repeats entry 259");
  EXPECT_EQ(broken([](Vocab& v) { AddToken(v, "b", TokenType::kByte); }),
            "tokenizer.ggml.tokens: entry 260 is of type byte, but not named like <0x0A>");
  EXPECT_EQ(broken([](Vocab& v) { v.eot = TokenId(260); }),
            "tokenizer.ggml.eot_token_id is 260, but tokenizer.ggml.tokens has 260 entries");
  EXPECT_EQ(broken([](Vocab& v) { v.bos.reset(); }),
            "tokenizer.ggml.bos_token_id is missing, but every text begins with it");
  EXPECT_EQ(broken([](Vocab& v) { v.tokens[7].score = std::nanf(""); }),
            "tokenizer.ggml.scores: entry 7 is not a number");
}

TEST(Detokenizer, NeverShowsHalfACharacter) {
  const auto tokenizer = Make(TinySentencePiece({{"▁", -1}}));
  const auto byte = [](int value) { return TokenId(static_cast<uint32_t>(3 + value)); };
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Push(byte(0xC3)), "");
  EXPECT_EQ(detokenizer.Push(byte(0xA9)), "é");
  EXPECT_EQ(detokenizer.Push(TokenId(2)), "");
  EXPECT_EQ(detokenizer.Push(byte(0xF0)), "");
  EXPECT_EQ(detokenizer.Push(byte('x')), "\uFFFDx");
  EXPECT_EQ(detokenizer.Push(byte(0xF0)), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
}

}  // namespace
}  // namespace kvern::text
