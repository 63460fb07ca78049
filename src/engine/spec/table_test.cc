// Every proposer of the table: its errors, and that what it drafts never changes what is said.
#include "engine/spec/table.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/spec/spec_test_util.h"
#include "model/vocab_loader.h"

namespace kvern::engine {
namespace {

using testing::Test;

std::string ErrorOf(const SpeculationOptions& options, const ProposerParts& parts) {
  const auto proposer = MakeProposer(options, parts);
  return proposer.ok() ? "" : proposer.error().message;
}

TEST(MakeProposerTest, NoneIsNull) {
  const auto proposer = MakeProposer({}, {});
  ASSERT_TRUE(proposer.ok());
  EXPECT_EQ(*proposer, nullptr);
}

TEST(MakeProposerTest, ErrorsNameTheOption) {
  EXPECT_EQ(ErrorOf({.proposer = "x"}, {}),
            "speculation.proposer: unknown 'x': use one of none, ngram, draft");
  EXPECT_EQ(ErrorOf({.proposer = "draft"}, {}),
            "speculation.draft_model: the proposer 'draft' needs the path of a GGUF");
  EXPECT_EQ(ErrorOf({.proposer = "draft", .draft_model = "a.gguf"}, {}),
            "speculation.proposer: this engine opens no draft models: use none or ngram");
  const ProposerParts missing = {.target = {}, .open_draft = [](const std::string& path) {
                                   return Errorf(ErrorCode::kNotFound, "{}: no such file", path);
                                 }};
  EXPECT_EQ(ErrorOf({.proposer = "draft", .draft_model = "a.gguf"}, missing),
            "a.gguf: no such file");
}

std::unique_ptr<text::Tokenizer> MakeTokenizer(std::vector<std::string> texts) {
  text::Vocab vocab;
  for (std::string& text : texts) vocab.tokens.push_back({.text = std::move(text)});
  return std::move(text::Tokenizer::Create(std::move(vocab))).value();
}

TEST(MakeProposerTest, ADraftNeedsTheSameVocabulary) {
  FakeModel model({.vocab_size = 3}, 4);
  const auto own = MakeTokenizer({"a", "b", "c"});
  const auto other = MakeTokenizer({"a", "x", "c"});
  const SpeculationOptions options = {.proposer = "draft", .draft_model = "a.gguf"};
  ProposerParts parts = {.target = {.vocab_size = 3, .tokenizer = own.get()},
                         .open_draft = [&](const std::string&) -> Result<DraftModel> {
                           DraftModel draft = model.parts();
                           draft.tokenizer = own.get();
                           return draft;
                         }};
  EXPECT_EQ(ErrorOf(options, parts), "");
  parts.target.tokenizer = other.get();
  EXPECT_EQ(ErrorOf(options, parts),
            "speculation.draft_model: a.gguf: its token 1 is \"b\", the model's \"x\": use a model "
            "of the same family");
  parts.target.vocab_size = 4;
  EXPECT_EQ(ErrorOf(options, parts),
            "speculation.draft_model: a.gguf: its vocabulary has 3 tokens, the model's 4: use a "
            "model of the same family");
}

constexpr size_t kNumTokens = 120;
constexpr size_t kNumBlocks = 200;

struct Case {
  size_t memory;  // tokens that the target's words depend on: few make it repeat itself
  float temperature;
};

class OneAnswerTest : public testing::TestWithParam<Case> {
 protected:
  static FakeExecutor::Options TargetOptions() {
    return {.max_step_tokens = 400, .memory = GetParam().memory};
  }

  std::vector<Text> Prompts() const {
    std::vector<Text> prompts;
    SplitMix64 random(3);
    for (const size_t length : {1, 15, 16, 33}) {
      Text& prompt = prompts.emplace_back(length);
      for (TokenId& token : prompt) token = TokenId(random.Below(24));
    }
    return prompts;
  }

  Decoded DecodeWith(Proposer* proposer) {
    FakeModel target(TargetOptions(), kNumBlocks);
    return Decode(target.parts(), proposer, Prompts(), Sampling(), kNumTokens);
  }

  Decoded DecodeWith(const std::string& name, FakeModel& draft) {
    const ProposerParts parts = {
        .target = {.vocab_size = 24},
        .open_draft = [&](const std::string&) -> Result<DraftModel> { return draft.parts(); }};
    const auto proposer =
        std::move(MakeProposer({.proposer = name, .draft_model = "draft.gguf"}, parts)).value();
    return DecodeWith(proposer.get());
  }

  static SamplingParams Sampling() {
    SamplingParams sampling = WithTemperature(GetParam().temperature);
    sampling.frequency_penalty = 0.5f;
    sampling.seed = 9;
    return sampling;
  }
};

INSTANTIATE_TEST_SUITE_P(Texts, OneAnswerTest,
                         testing::Values(Case{SIZE_MAX, 0}, Case{SIZE_MAX, 0.9f}, Case{2, 0},
                                         Case{2, 0.9f}));

TEST_P(OneAnswerTest, EveryProposerLeavesTheTextsAsTheyAre) {
  const Decoded plain = DecodeWith(nullptr);
  EXPECT_EQ(plain.num_steps, kNumTokens);
  for (const ProposerRow& row : Proposers()) {
    for (const uint64_t draft_seed : {1, 2}) {
      SCOPED_TRACE(testing::Message() << row.name << ", draft of seed " << draft_seed);
      FakeModel draft({.seed = draft_seed, .memory = GetParam().memory}, kNumBlocks);
      const Decoded decoded = DecodeWith(std::string(row.name), draft);
      EXPECT_EQ(decoded.texts, plain.texts);
      EXPECT_TRUE(draft.engine.IsEmptyOnceDropped());
    }
  }
}

TEST_P(OneAnswerTest, ADraftInTooLittleMemoryLeavesThemToo) {
  FakeModel draft({.memory = GetParam().memory}, /*num_blocks=*/11);
  EXPECT_EQ(DecodeWith("draft", draft).texts, DecodeWith(nullptr).texts);
}

TEST(AcceptanceTest, AModelIsItsOwnBestDraft) {
  FakeModel target({.max_step_tokens = 400}, kNumBlocks), draft({}, kNumBlocks);
  const auto proposer = MakeDraftProposer(draft.parts(), {.vocab_size = 24});
  const Decoded decoded =
      Decode(target.parts(), proposer->get(), {Text(5, TokenId{3})}, WithTemperature(0), 60);
  EXPECT_GT(decoded.drafted, 0u);
  EXPECT_EQ(decoded.accepted, decoded.drafted);
  EXPECT_EQ(decoded.num_steps, 10u);
}

TEST(AcceptanceTest, AnUnrelatedModelIsRightByChanceOnly) {
  FakeModel target({.max_step_tokens = 400}, kNumBlocks), draft({.seed = 2}, kNumBlocks);
  const auto proposer = MakeDraftProposer(draft.parts(), {.vocab_size = 24});
  const Decoded decoded =
      Decode(target.parts(), proposer->get(), {Text(5, TokenId{3})}, WithTemperature(0), 200);
  EXPECT_LT(decoded.accepted, decoded.drafted / 10);
}

TEST(AcceptanceTest, PromptLookupIsRightWhereATextRepeatsItself) {
  FakeModel target({.max_step_tokens = 400, .memory = 1}, kNumBlocks);
  const auto proposer = MakeProposer({.proposer = "ngram"}, {});
  const Decoded decoded =
      Decode(target.parts(), proposer->get(), {Text(2, TokenId{3})}, WithTemperature(0), 200);
  EXPECT_GT(decoded.accepted, 100u);
}

}  // namespace
}  // namespace kvern::engine
