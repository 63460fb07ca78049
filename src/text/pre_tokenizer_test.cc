#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "text/char_class.h"
#include "text/utf8.h"

namespace kvern::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Words(std::string_view name, std::string_view text) {
  std::u32string code_points;
  for (size_t i = 0; i < text.size();) code_points.push_back(NextCodePoint(text, i));
  std::vector<std::string> words;
  size_t begin = 0;
  for (const size_t end : SplitWords(*FindPreTokenizer(name), code_points)) {
    words.emplace_back();
    for (; begin < end; ++begin) AppendUtf8(code_points[begin], words.back());
  }
  return words;
}

TEST(CharClass, IsOfTheVersionThatModelsAreCheckedWith) {
  EXPECT_EQ(ClassOf(U'a'), CharClass::kLetter);
  EXPECT_EQ(ClassOf(U'٣'), CharClass::kNumber);
  EXPECT_EQ(ClassOf(U'½'), CharClass::kNumber);
  EXPECT_EQ(ClassOf(0x301), CharClass::kMark);
  EXPECT_EQ(ClassOf(U'。'), CharClass::kPunctuation);
  EXPECT_EQ(ClassOf(U'€'), CharClass::kSymbol);
  EXPECT_EQ(ClassOf(0x3000), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x85), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x200B), CharClass::kOther);
  EXPECT_EQ(ClassOf(0x2EBF0), CharClass::kLetter);  // new in Unicode 15.1
  EXPECT_EQ(ClassOf(0x1C89), CharClass::kOther);    // new in Unicode 16
  EXPECT_EQ(ClassOf(0x10FFFF), CharClass::kOther);
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_THAT(Words("gpt-2", "I'm they're CAN'T"),
              ElementsAre("I", "'m", " they", "'re", " CAN", "'", "T"));
  EXPECT_THAT(Words("gpt-2", "a  b\n\n c1234 !?"),
              ElementsAre("a", " ", " b", "\n\n", " c", "1234", " !?"));
  EXPECT_THAT(Words("gpt-2", "é\u0301x  "), ElementsAre("é", "\u0301", "x", "  "));
  EXPECT_THAT(Words("gpt-2", ""), ElementsAre());
  EXPECT_THAT(Words("gpt-2", " "), ElementsAre(" "));
}

TEST(PreTokenizer, SmolLmHoldsDigitsApart) {
  EXPECT_THAT(Words("smollm", "ab 12٣"), ElementsAre("ab", " ", "1", "2", "٣"));
  EXPECT_THAT(Words("smollm", "x  7"), ElementsAre("x", "  ", "7"));
}

TEST(PreTokenizer, Llama3) {
  EXPECT_THAT(Words("llama-bpe", "CAN'T'll"), ElementsAre("CAN", "'T", "'ll"));
  EXPECT_THAT(Words("llama-bpe", "1234567 (x)"), ElementsAre("123", "456", "7", " (", "x", ")"));
  EXPECT_THAT(Words("llama-bpe", "a!\n\n b  \n\n  c"),
              ElementsAre("a", "!\n\n", " b", "  \n\n", " ", " c"));
  EXPECT_THAT(Words("llama-bpe", "\tx\u00a0y "), ElementsAre("\tx", "\u00a0y", " "));
}

TEST(PreTokenizer, Qwen2HoldsDigitsApart) {
  EXPECT_THAT(Words("qwen2", "in 2024'S"), ElementsAre("in", " ", "2", "0", "2", "4", "'S"));
}

TEST(PreTokenizer, FalconCutsPunctuationFirst) {
  EXPECT_THAT(Words("falcon", "don't 12345`"), ElementsAre("don", "'", "t", " ", "123", "45", "`"));
  EXPECT_THAT(Words("default", "don't 12345`"),
              ElementsAre("don", "'", "t", " ", "123", "45", "`"));
  EXPECT_THAT(Words("default", "x ~`1"), ElementsAre("x", " ", "~", "`", "1"));
}

TEST(PreTokenizer, DeepSeekLlm) {
  EXPECT_THAT(Words("deepseek-llm", "a b\r\n  "), ElementsAre("a", " b", "\r", "\n", "  "));
  EXPECT_THAT(Words("deepseek-llm", "naïve x"), ElementsAre("na", "ï", "ve", " x"));
  EXPECT_THAT(Words("deepseek-llm", "你好 ,12"), ElementsAre("你好", " ,", "12"));
}

TEST(PreTokenizer, DeepSeekCoder) {
  EXPECT_THAT(Words("deepseek-coder", "naïve  x_1 +2"),
              ElementsAre("naïve", " ", " x", "_", "1", " +", "2"));
}

TEST(PreTokenizer, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const PreTokenizer& row : PreTokenizers()) {
    for (const std::string_view name : row.names) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(FindPreTokenizer(name), &row);
      EXPECT_NE(PreTokenizerNames().find(name), std::string::npos);
    }
  }
  EXPECT_EQ(FindPreTokenizer("klingon"), nullptr);
}

TEST(PreTokenizer, WordsCoverTheText) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr std::u32string_view kCharacters = U"aZ's t\n\r \t19٣é\u0301語。€!$\u3000\u200b😀";
  for (const PreTokenizer& row : PreTokenizers()) {
    for (int round = 0; round < 300; ++round) {
      std::u32string text;
      for (uint32_t length = random() % 20; text.size() < length;) {
        text.push_back(kCharacters[random() % kCharacters.size()]);
      }
      size_t previous = 0;
      for (const size_t end : SplitWords(row, text)) {
        ASSERT_GT(end, previous) << row.names[0];
        previous = end;
      }
      ASSERT_EQ(previous, text.size()) << row.names[0];
    }
  }
}

// Anything but linear time would take minutes.
TEST(PreTokenizer, LongRunsStayLinear) {
  constexpr size_t kLength = 100'000;
  for (const PreTokenizer& row : PreTokenizers()) {
    for (const std::u32string_view unit : {U"a", U" ", U"\n", U" \n", U"1", U"!", U"'", U"語"}) {
      std::u32string text;
      while (text.size() < kLength) text += unit;
      text.push_back(U'x');
      EXPECT_EQ(SplitWords(row, text).back(), text.size());
    }
  }
}

}  // namespace
}  // namespace kvern::text
