#include "engine/reply_text.h"

#include <gtest/gtest.h>

#include "text/vocab_test_util.h"

namespace kvern::engine {
namespace {

class ReplyTextTest : public ::testing::Test {
 protected:
  ReplyTextTest() : tokenizer_(*text::Tokenizer::Create(text::testing::TinyBpe({"a b", "ab c"}))) {}

  // What comes out for each token of `text`, a | between them, then what the end brings; or a !
  // where a stop came.
  std::string Pieces(std::string_view text, std::vector<std::string> stops) {
    ReplyText reply(tokenizer_.get(), stops);
    std::string pieces;
    for (const TokenId token : tokenizer_->Encode(text, {})) {
      if (reply.Push(token, pieces)) return pieces + "!";
      pieces += "|";
    }
    reply.Flush(pieces);
    return pieces;
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
};

TEST_F(ReplyTextTest, WithoutStopsEverythingComesAtOnce) {
  EXPECT_EQ(Pieces("abc de", {}), "abc| |d|e|");
}

TEST_F(ReplyTextTest, WhatMayBeginAStopIsHeldBack) {
  EXPECT_EQ(Pieces("x\nyz", {"\n\n"}), "x||\ny|z|");
  EXPECT_EQ(Pieces("x\n", {"\n\n"}), "x||\n");
}

TEST_F(ReplyTextTest, AStopEndsTheTextBeforeIt) {
  EXPECT_EQ(Pieces("x\n\nz", {"\n\n"}), "x||!");
  EXPECT_EQ(Pieces("xEND", {"END", "ND"}), "x|||!");
}

TEST_F(ReplyTextTest, AStopInsideATokenCutsIt) { EXPECT_EQ(Pieces("abcd", {"b"}), "a!"); }

TEST_F(ReplyTextTest, TheFirstOfSeveralStopsCounts) { EXPECT_EQ(Pieces("abc", {"c", "b"}), "a!"); }

TEST_F(ReplyTextTest, AFalseStartMayHoldTheTrueOne) { EXPECT_EQ(Pieces("xxy", {"xy"}), "|x|!"); }

// "ENDà" is two tokens: the first has the stop and half of the à.
TEST_F(ReplyTextTest, HalfACharacterAfterAStopIsNoText) {
  text::Vocab vocab = text::testing::TinyBpe({});
  const TokenId end = text::testing::AddToken(vocab, "ENDÃ");
  const auto tokenizer = *text::Tokenizer::Create(std::move(vocab));
  const std::vector<std::string> stops = {"END"};
  ReplyText reply(tokenizer.get(), stops);
  std::string out;
  EXPECT_TRUE(reply.Push(end, out));
  reply.Flush(out);
  EXPECT_EQ(out, "");
}

TEST_F(ReplyTextTest, WithoutATokenizerThereIsNoText) {
  ReplyText reply(nullptr, {});
  std::string out;
  EXPECT_FALSE(reply.Push(TokenId{1}, out));
  reply.Flush(out);
  EXPECT_EQ(out, "");
}

}  // namespace
}  // namespace kvern::engine
