#include "model/vocab_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_test_util.h"

namespace kvern::model {
namespace {

using text::TokenType;
using text::VocabKind;

struct Loaded {
  std::optional<text::Vocab> vocab;
  std::string error;
};

Loaded Load(const GgufWriter& writer) {
  const std::string bytes = writer.Bytes();
  const auto gguf = Gguf::Parse(std::as_bytes(std::span(bytes)), "m.gguf");
  EXPECT_TRUE(gguf.ok());
  auto vocab = LoadVocab(*gguf);
  if (!vocab.ok()) return {std::nullopt, vocab.error().message};
  return {std::move(vocab).value(), ""};
}

GgufWriter Bpe() {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "gpt2")
      .AddStrings("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"})
      .AddStrings("tokenizer.ggml.merges", {"a b"});
  return writer;
}

GgufWriter SentencePiece() {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "llama")
      .AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"});
  return writer;
}

TEST(LoadVocab, ReadsByteLevelBpe) {
  const Loaded loaded =
      Load(Bpe()
               .AddString("tokenizer.ggml.pre", "smollm")
               .AddArray<int32_t>("tokenizer.ggml.token_type", MetadataKind::kInt32, {1, 4, 99, 3})
               .AddUint32("tokenizer.ggml.eos_token_id", 3)
               .AddUint32("tokenizer.ggml.fim_pre_token_id", 0)
               .AddUint32("tokenizer.ggml.prefix_token_id", 1)
               .Add<uint8_t>("tokenizer.ggml.add_bos_token", MetadataKind::kBool, 0));
  ASSERT_TRUE(loaded.vocab) << loaded.error;
  const text::Vocab& vocab = *loaded.vocab;
  EXPECT_EQ(vocab.kind, VocabKind::kByteLevelBpe);
  EXPECT_EQ(vocab.pre_tokenizer, "smollm");
  EXPECT_EQ(vocab.merges, std::vector<std::string>{"a b"});
  ASSERT_EQ(vocab.tokens.size(), 4u);
  EXPECT_EQ(vocab.tokens[1].text, "b");
  EXPECT_EQ(vocab.tokens[1].type, TokenType::kUserDefined);
  EXPECT_EQ(vocab.tokens[2].type, TokenType::kUnused);
  EXPECT_EQ(vocab.tokens[3].type, TokenType::kControl);
  EXPECT_EQ(vocab.bos, std::nullopt);
  EXPECT_EQ(vocab.eos, TokenId(3));
  EXPECT_EQ(vocab.fim_prefix, TokenId(1));
  EXPECT_EQ(vocab.add_bos, false);
  EXPECT_EQ(vocab.add_eos, std::nullopt);
}

TEST(LoadVocab, ReadsSentencePiece) {
  const Loaded loaded =
      Load(SentencePiece()
               .AddArray<float>("tokenizer.ggml.scores", MetadataKind::kFloat32, {0, 0, 0, -1.5f})
               .AddString("general.name", "My PHI-3 mini"));
  ASSERT_TRUE(loaded.vocab) << loaded.error;
  EXPECT_EQ(loaded.vocab->kind, VocabKind::kSentencePiece);
  EXPECT_EQ(loaded.vocab->tokens[3].score, -1.5f);
  EXPECT_EQ(loaded.vocab->unknown, TokenId(0));
  EXPECT_EQ(loaded.vocab->bos, TokenId(1));
  EXPECT_EQ(loaded.vocab->eos, TokenId(2));
  EXPECT_TRUE(loaded.vocab->strip_after_special);
}

TEST(LoadVocab, MissingPreTokenizerIsTheDefault) {
  EXPECT_EQ(Load(Bpe()).vocab->pre_tokenizer, "default");
}

TEST(LoadVocab, ErrorsNameFileAndKey) {
  GgufWriter bert;
  EXPECT_EQ(Load(bert.AddString("tokenizer.ggml.model", "bert")).error,
            "m.gguf: tokenizer.ggml.model is 'bert', which Kvern does not know; it knows gpt2 "
            "(byte-level BPE) and llama (SentencePiece)");
  EXPECT_EQ(Load(Bpe().AddUint32("tokenizer.ggml.eot_token_id", 4)).error,
            "m.gguf: tokenizer.ggml.eot_token_id is 4, but tokenizer.ggml.tokens has 4 entries");
  EXPECT_EQ(
      Load(Bpe().AddArray<int32_t>("tokenizer.ggml.token_type", MetadataKind::kInt32, {1})).error,
      "m.gguf: tokenizer.ggml.token_type has 1 entries, but tokenizer.ggml.tokens has 4");
  EXPECT_EQ(Load(SentencePiece().AddArray<float>("tokenizer.ggml.scores", MetadataKind::kFloat32,
                                                 {1, 2, 3}))
                .error,
            "m.gguf: tokenizer.ggml.scores has 3 entries, but tokenizer.ggml.tokens has 4");
  for (const std::string_view key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens"}) {
    EXPECT_THAT(
        Load(key == "tokenizer.ggml.model" ? GgufWriter()
                                           : GgufWriter().AddString("tokenizer.ggml.model", "gpt2"))
            .error,
        ::testing::AllOf(::testing::StartsWith("m.gguf: "), ::testing::HasSubstr(key)));
  }
}

TEST(LoadTokenizer, ErrorsNameTheFile) {
  const std::string bytes = Bpe().AddString("tokenizer.ggml.pre", "klingon").Bytes();
  const auto gguf = Gguf::Parse(std::as_bytes(std::span(bytes)), "m.gguf");
  const auto tokenizer = LoadTokenizer(*gguf);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(tokenizer.error().message,
              ::testing::StartsWith("m.gguf: tokenizer.ggml.pre is 'klingon'"));
}

std::string Unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The default model, against the ids that llama.cpp gives (tests/data/tokenizer/make_goldens.py).
TEST(LoadTokenizer, GivesTheGoldenIdsForTheDefaultModel) {
  const auto gguf = Gguf::Open("build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message << " (scripts/setup fetches it)";
  const auto tokenizer = LoadTokenizer(*gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  std::ifstream golden("tests/data/tokenizer/smollm.golden");
  size_t num_lines = 0;
  for (std::string line; std::getline(golden, line); ++num_lines) {
    std::istringstream fields(line);
    int flags = 0;
    std::string hex;
    fields >> flags >> hex;
    std::vector<TokenId> expected;
    for (uint32_t id = 0; fields >> id;) expected.push_back(TokenId(id));
    const std::string text = Unhex(hex);
    EXPECT_EQ((*tokenizer)->Encode(text, {(flags & 1) != 0, (flags & 2) != 0}), expected) << text;
  }
  EXPECT_GT(num_lines, 300u);
}

TEST(LoadTokenizer, KnowsWhatEndsTheDefaultModelsReply) {
  const auto gguf = Gguf::Open("build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message << " (scripts/setup fetches it)";
  const auto tokenizer = LoadTokenizer(*gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const std::string_view name : {"<|im_end|>", "<|endoftext|>"}) {
    EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(*(*tokenizer)->FindToken(name))) << name;
  }
  EXPECT_FALSE((*tokenizer)->IsEndOfGeneration(*(*tokenizer)->FindToken("<|im_start|>")));
  EXPECT_FALSE((*tokenizer)->adds_bos());
}

}  // namespace
}  // namespace kvern::model
