#include "text/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/vocab_test_util.h"

namespace kvern::text {
namespace {

using testing::AddToken;
using ::testing::ElementsAre;

// Resolves a vocabulary of normal tokens with these texts; returns the texts that end a generation.
std::vector<std::string> Ends(const std::vector<std::string>& texts, Vocab& vocab) {
  for (const std::string& text : texts) AddToken(vocab, text);
  std::vector<std::string> ends;
  for (const TokenId id : ResolveSpecialTokens(vocab)) {
    ends.push_back(vocab.tokens[static_cast<size_t>(id)].text);
  }
  return ends;
}

TokenType TypeOf(const Vocab& vocab, std::string_view text) {
  for (const VocabToken& token : vocab.tokens) {
    if (token.text == text) return token.type;
  }
  return TokenType::kUnused;
}

TEST(SpecialTokens, CollectsEveryTokenThatEndsAGeneration) {
  Vocab vocab;
  vocab.eos = TokenId(1);
  EXPECT_THAT(
      Ends({"a", "<my_eos>", "<|im_end|>", "<|endoftext|>", "<reponame>", "<|eom_id|>"}, vocab),
      ElementsAre("<my_eos>", "<|im_end|>", "<|endoftext|>", "<reponame>", "<|eom_id|>"));
  EXPECT_EQ(vocab.eot, TokenId(2));
  EXPECT_EQ(vocab.eom, TokenId(5));
  EXPECT_EQ(TypeOf(vocab, "<|im_end|>"), TokenType::kControl);
  EXPECT_EQ(TypeOf(vocab, "<my_eos>"), TokenType::kNormal);
}

TEST(SpecialTokens, KeepsRolesThatTheModelNames) {
  Vocab vocab;
  vocab.eot = TokenId(0);
  vocab.fim_prefix = TokenId(0);
  EXPECT_THAT(Ends({"stop", "<|end|>", "<PRE>", "<SUF>"}, vocab), ElementsAre("stop", "<|end|>"));
  EXPECT_EQ(vocab.eot, TokenId(0));
  EXPECT_EQ(TypeOf(vocab, "<PRE>"), TokenType::kNormal);
  EXPECT_EQ(TypeOf(vocab, "<SUF>"), TokenType::kControl);
}

TEST(SpecialTokens, EndOfAMessageIsNotTheEndWhereRepliesHaveSeveral) {
  Vocab harmony;
  EXPECT_THAT(Ends({"<|end|>", "<|return|>", "<|call|>", "<|channel|>"}, harmony),
              ElementsAre("<|return|>", "<|call|>"));
  EXPECT_EQ(TypeOf(harmony, "<|end|>"), TokenType::kUserDefined);
  EXPECT_EQ(TypeOf(harmony, "<|channel|>"), TokenType::kUserDefined);

  Vocab solar;
  EXPECT_THAT(Ends({"<|end|>", "<|flush|>", "<|calls|>"}, solar),
              ElementsAre("<|flush|>", "<|calls|>"));

  Vocab phi;
  EXPECT_THAT(Ends({"<|end|>", "<|return|>"}, phi), ElementsAre("<|end|>", "<|return|>"));

  Vocab gemma;
  EXPECT_THAT(Ends({"</s>", "<|tool_response>"}, gemma), ElementsAre("<|tool_response>"));
  EXPECT_EQ(TypeOf(gemma, "</s>"), TokenType::kNormal);
}

}  // namespace
}  // namespace kvern::text
