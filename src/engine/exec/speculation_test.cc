// Speculation on real models: every proposer leaves what a tiny model says as it is, bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/exec/exec_test_util.h"
#include "engine/spec/spec_test_util.h"
#include "engine/spec/table.h"

namespace kvern::engine {
namespace {

constexpr size_t kNumTokens = 60;

model::GoldenModelSpec Spec(uint64_t seed) {
  model::GoldenModelSpec spec;
  spec.num_layers = 1;
  spec.seed = seed;
  return spec;
}

DraftModel PartsOf(TestModel& model) {
  DraftModel parts;
  parts.executor = &model.executor();
  parts.cache = &model.opened().kv_cache();
  parts.ns = model.opened().kv_namespace();
  parts.tokenizer = &model.opened().tokenizer();
  return parts;
}

class SpeculationTest : public testing::TestWithParam<float> {
 protected:
  Decoded DecodeWith(Proposer* proposer) {
    SamplingParams sampling = WithTemperature(GetParam());
    sampling.seed = 5;
    const std::vector<Text> prompts = {RandomTokens(1, 20, target_.vocab_size()),
                                       RandomTokens(2, 1, target_.vocab_size()),
                                       RandomTokens(3, 150, target_.vocab_size())};
    return Decode(PartsOf(target_), proposer, prompts, sampling, kNumTokens);
  }

  Decoded DecodeWith(std::string_view name, TestModel& draft) {
    const ProposerParts parts = {
        .target = {.vocab_size = target_.vocab_size(), .tokenizer = &target_.opened().tokenizer()},
        .open_draft = [&](const std::string&) -> Result<DraftModel> { return PartsOf(draft); }};
    SpeculationOptions options;
    options.proposer = name;
    options.draft_model = "draft.gguf";
    const auto proposer = std::move(MakeProposer(options, parts)).value();
    return DecodeWith(proposer.get());
  }

  TestModel target_{Spec(1)};
};

INSTANTIATE_TEST_SUITE_P(Temperatures, SpeculationTest, testing::Values(0.0f, 0.9f));

TEST_P(SpeculationTest, EveryProposerLeavesTheTextsAsTheyAre) {
  const Decoded plain = DecodeWith(nullptr);
  for (const ProposerRow& row : Proposers()) {
    for (const uint64_t draft_seed : {1, 2}) {
      SCOPED_TRACE(testing::Message() << row.name << ", draft of seed " << draft_seed);
      TestModel draft(Spec(draft_seed));
      const Decoded decoded = DecodeWith(row.name, draft);
      EXPECT_EQ(decoded.texts, plain.texts);
      const bool is_own_draft = row.name == "draft" && draft_seed == 1;
      if (is_own_draft && GetParam() == 0) {
        EXPECT_GT(decoded.drafted, 0u);
        EXPECT_EQ(decoded.accepted, decoded.drafted);
      }
    }
  }
}

// They take turns, so one team of threads computes both.
TEST(SharedTeamTest, ADraftComputesOnTheThreadsOfItsTarget) {
  TestModel target(Spec(1), {.num_threads = 2});
  OpenOptions options;
  options.team = &target.opened().team();
  options.context = 100;
  const auto file = model::MakeGoldenModel(Spec(1));
  auto draft = OpenedModel::Open(*model::Gguf::Parse(file, "golden"), options);
  ASSERT_TRUE(draft.ok());
  EXPECT_EQ(&draft->team(), &target.opened().team());
}

}  // namespace
}  // namespace kvern::engine
