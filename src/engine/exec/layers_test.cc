// Chunks that go through a few layers a step: what they store and say is what one step gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/exec/exec_test_util.h"

namespace kvern::engine {
namespace {

constexpr size_t kPrompt = 150;
constexpr size_t kChunk = 40;
constexpr size_t kStreams = 3;

model::GoldenModelSpec Spec() {
  model::GoldenModelSpec spec;
  spec.num_layers = 5;
  return spec;
}

// Has time for so many parts.
class CountedPace final : public Pace {
 public:
  explicit CountedPace(uint32_t num_parts) : num_parts_(num_parts) {}
  bool Begin() override { return ++num_begins == 1 && num_parts_ > 0; }
  bool HasTime() override { return ++num_asked < num_parts_; }
  uint32_t num_begins = 0, num_asked = 0;

 private:
  const uint32_t num_parts_;
};

// Sequences that decode, and a prompt that is computed beside them.
class LayersTest : public testing::TestWithParam<size_t> {
 protected:
  LayersTest() : model_(Spec(), {.num_threads = GetParam()}) {
    text_ = RandomTokens(1, kPrompt + kChunk + 4, model_.vocab_size());
    expected_ = model_.Reference(text_);
    prompt_ = model_.MakeCache();
    model_.Append(*prompt_, std::span(text_).first(kPrompt), 100);
    for (size_t i = 0; i < kStreams; ++i) {
      streams_.push_back(model_.MakeCache());
      stream_texts_.push_back(RandomTokens(10 + i, 100, model_.vocab_size()));
      model_.Append(*streams_[i], std::span(stream_texts_[i]).first(20), 20);
      stream_logits_.push_back(model_.Reference(stream_texts_[i]));
    }
  }

  // The next chunk of the prompt through layers [first, end), with the streams' next tokens before
  // it, whose logits must be right.
  Result<std::span<const SliceOutput>> Run(uint32_t first, uint32_t end, size_t num_streams) {
    plan_.slices.clear();
    views_.resize(kStreams + 1);
    for (size_t i = 0; i < num_streams; ++i) AddStream(i);
    if (prompt_->length() == kPrompt) {
      EXPECT_TRUE(prompt_->Extend(kChunk).ok());
    }
    views_[kStreams] = prompt_->View();
    plan_.slices.push_back({.tokens = std::span(text_).subspan(kPrompt, kChunk),
                            .first_position = kPrompt,
                            .views = {&views_[kStreams], 1},
                            .num_logits = kChunk,
                            .is_chunk = true,
                            .first_layer = first});
    CountedPace pace(end - first);
    plan_.pace = &pace;
    auto outputs = model_.executor().Execute(plan_);
    if (outputs.ok()) {
      EXPECT_EQ(pace.num_begins, 1);
      EXPECT_EQ(outputs->back().next_layer, end);
      EXPECT_EQ(outputs->back().logits.size(), end == Spec().num_layers ? kChunk : 0);
    }
    for (size_t i = 0; outputs.ok() && i < num_streams; ++i) {
      const size_t position = streams_[i]->length() - 1;
      EXPECT_TRUE(SameBits((*outputs)[i].logits[0],
                           model_.Positions(stream_logits_[i], position, position + 1)));
    }
    return outputs;
  }

  void AddStream(size_t i) {
    const size_t position = streams_[i]->length();
    EXPECT_TRUE(streams_[i]->Extend(1).ok());
    views_[i] = streams_[i]->View();
    plan_.slices.push_back({.tokens = std::span(stream_texts_[i]).subspan(position, 1),
                            .first_position = static_cast<uint32_t>(position),
                            .views = {&views_[i], 1},
                            .num_logits = 1});
  }

  // That the chunk has the right logits, and so have tokens that read what it stored.
  void ExpectRight(const SliceOutput& output) {
    for (size_t i = 0; i < kChunk; ++i) {
      EXPECT_TRUE(
          SameBits(output.logits[i], model_.Positions(expected_, kPrompt + i, kPrompt + i + 1)));
    }
    const Logits later = model_.Append(*prompt_, std::span(text_).subspan(kPrompt + kChunk), 4);
    EXPECT_TRUE(SameBits(later, model_.Positions(expected_, kPrompt + kChunk, text_.size())));
  }

  TestModel model_;
  std::vector<TokenId> text_;
  Logits expected_;
  std::unique_ptr<kv::SequenceCache> prompt_;
  std::vector<std::unique_ptr<kv::SequenceCache>> streams_;
  std::vector<std::vector<TokenId>> stream_texts_;
  std::vector<Logits> stream_logits_;
  std::vector<PagedView> views_;
  StepPlan plan_;
};

INSTANTIATE_TEST_SUITE_P(Threads, LayersTest, testing::Values(1, 2, 4));

TEST_P(LayersTest, AnyDivisionGivesTheSameBits) {
  const std::vector<std::vector<uint32_t>> divisions = {{5}, {1, 2, 3, 4, 5}, {2, 5}, {4, 5}};
  for (const std::vector<uint32_t>& ends : divisions) {
    uint32_t first = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto outputs = Run(first, ends[i], i % (kStreams + 1));
      ASSERT_TRUE(outputs.ok()) << outputs.error().message;
      first = ends[i];
      if (first == Spec().num_layers) ExpectRight(outputs->back());
    }
    prompt_->Truncate(kPrompt);
  }
}

TEST_P(LayersTest, AChunkMayBeginAgain) {
  ASSERT_TRUE(Run(0, 3, 2).ok());
  ASSERT_TRUE(Run(0, 2, 1).ok());
  const auto outputs = Run(2, 5, 3);
  ASSERT_TRUE(outputs.ok());
  ExpectRight(outputs->back());
}

TEST_P(LayersTest, OnlyWhatWasLeftCanGoOn) {
  EXPECT_EQ(Run(2, 5, 0).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(Run(0, 2, 0).ok());
  EXPECT_EQ(Run(3, 5, 0).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(Run(2, 3, 0).ok());  // what was refused has changed nothing
  EXPECT_EQ(Run(2, 5, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Run(5, 6, 0).error().code, ErrorCode::kInvalidArgument);
  const auto outputs = Run(3, 5, 1);
  ASSERT_TRUE(outputs.ok());
  ExpectRight(outputs->back());
}

TEST_P(LayersTest, AChunkWaitsForStepsWithoutIt) {
  ASSERT_TRUE(Run(0, 3, 2).ok());
  const std::vector<TokenId> other = RandomTokens(99, 50, model_.vocab_size());
  EXPECT_TRUE(SameBits(model_.Append(*model_.MakeCache(), other, 20), model_.Reference(other)));
  const auto outputs = Run(3, 5, 1);
  ASSERT_TRUE(outputs.ok());
  ExpectRight(outputs->back());
}

TEST_P(LayersTest, AChunkMayHaveNoTimeAtAll) {
  ASSERT_TRUE(Run(0, 0, 2).ok());
  ASSERT_TRUE(Run(0, 3, 1).ok());
  ASSERT_TRUE(Run(3, 3, 1).ok());
  const auto outputs = Run(3, 5, 0);
  ASSERT_TRUE(outputs.ok());
  ExpectRight(outputs->back());
}

TEST_P(LayersTest, WithoutAPaceAChunkGoesOnToItsEnd) {
  ASSERT_TRUE(Run(0, 1, 1).ok());
  plan_.slices.erase(plan_.slices.begin());
  plan_.slices.back().first_layer = 1;
  plan_.pace = nullptr;
  const auto outputs = model_.executor().Execute(plan_);
  ASSERT_TRUE(outputs.ok());
  ExpectRight(outputs->back());
}

TEST_P(LayersTest, OnlyTheLastSliceMayBeAChunk) {
  ASSERT_TRUE(Run(0, 2, 1).ok());
  std::swap(plan_.slices[0], plan_.slices[1]);
  const auto outputs = model_.executor().Execute(plan_);
  EXPECT_EQ(outputs.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvern::engine
