// Query-only slices: the answer of an ordinary step, nothing stored, and every wrong bit of the
// stored row seen (rule K5).
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "engine/exec/exec_test_util.h"

namespace kvern::engine {
namespace {

using compute::KvDtype;
using compute::KvLayout;

constexpr size_t kLength = 270;

// Heads that fill no vector, in two layers.
model::GoldenModelSpec Spec() {
  model::GoldenModelSpec spec;
  spec.hidden = 64;
  spec.num_heads = 8;
  spec.num_kv_heads = 2;
  spec.head_dim = 20;
  spec.vocab_size = 75;
  return spec;
}

// A text in blocks of its own, whose bytes tests may look at and change.
class Text {
 public:
  Text(TestModel& model, uint64_t seed)
      : model_(model),
        layout_(model.opened().layout()),
        tokens_(RandomTokens(seed, kLength, model.vocab_size())),
        memory_(AlignedBuffer::Create(kNumBlocks * layout_.block_bytes()).value()) {
    for (size_t i = 0; i < kNumBlocks; ++i) {
      blocks_.push_back(memory_.data() + i * layout_.block_bytes());
    }
    view_ = {blocks_.data(), kNumBlocks};
  }

  // Tokens [first, end), with the logits of the last.
  Slice Between(size_t first, size_t end) const {
    return {.tokens = std::span(tokens_).subspan(first, end - first),
            .first_position = static_cast<uint32_t>(first),
            .views = {&view_, 1},
            .num_logits = 1};
  }
  Slice QueryOnly(size_t position) const {
    Slice slice = Between(position, position + 1);
    slice.query_only = true;
    return slice;
  }

  // The logits of the last of tokens [first, end).
  Logits Compute(size_t first, size_t end) {
    StepPlan plan;
    plan.slices = {Between(first, end)};
    return model_.Execute(plan)[0];
  }

  std::vector<std::byte> Bytes() const {
    return {memory_.data(), memory_.data() + memory_.bytes()};
  }

  // The bytes of the row at `position`, its scale last.
  std::vector<std::byte*> KeyBytes(size_t position, uint32_t layer, uint32_t head) {
    return BytesOf(blocks_[position / kBlockTokens] + layout_.k_offset(layer, head),
                   GetKvDtype(layout_.k_dtype).k_row(layout_.head_dim, position % kBlockTokens));
  }
  std::vector<std::byte*> ValueBytes(size_t position, uint32_t layer, uint32_t head) {
    return BytesOf(blocks_[position / kBlockTokens] + layout_.v_offset(layer, head),
                   GetKvDtype(layout_.v_dtype).v_row(layout_.v_dim(), position % kBlockTokens));
  }

 private:
  static std::vector<std::byte*> BytesOf(std::byte* plane, const compute::KvRow& row) {
    std::vector<std::byte*> bytes;
    for (uint32_t i = 0; i < row.count * row.bytes; ++i) {
      bytes.push_back(plane + row.first + i / row.bytes * row.stride + i % row.bytes);
    }
    for (uint32_t i = 0; i < row.scale_bytes; ++i) bytes.push_back(plane + row.scale + i);
    return bytes;
  }

  static constexpr size_t kNumBlocks = kLength / kBlockTokens + 1;

  TestModel& model_;
  const KvLayout layout_;
  const std::vector<TokenId> tokens_;
  AlignedBuffer memory_;
  std::vector<std::byte*> blocks_;
  PagedView view_;
};

SliceOutput RunSlice(TestModel& model, const Slice& slice) {
  StepPlan plan;
  plan.slices = {slice};
  const auto outputs = model.executor().Execute(plan);
  EXPECT_TRUE(outputs.ok());
  return (*outputs)[0];
}

Logits Copy(const SliceOutput& output) {
  return {output.logits.at(0).begin(), output.logits.at(0).end()};
}

TEST(QueryOnlyTest, EqualsTheOrdinaryStep) {
  constexpr size_t kPositions[] = {0, 15, 16, 127, 128, 200, kLength - 1};
  for (const compute::KvDtypeTraits& k : compute::KvDtypes()) {
    for (const compute::KvDtypeTraits& v : compute::KvDtypes()) {
      for (const size_t num_threads : {1u, 2u, 4u}) {
        SCOPED_TRACE(testing::Message() << k.name << "/" << v.name << " on " << num_threads);
        TestModel model(Spec(),
                        {.k_dtype = k.dtype, .v_dtype = v.dtype, .num_threads = num_threads});
        Text text(model, 1);
        std::vector<Logits> expected;
        size_t computed = 0;
        for (const size_t position : kPositions) {
          if (computed < position) text.Compute(computed, position);
          expected.push_back(text.Compute(position, position + 1));
          computed = position + 1;
        }
        const auto before = text.Bytes();
        for (size_t i = 0; i < std::size(kPositions); ++i) {
          const SliceOutput output = RunSlice(model, text.QueryOnly(kPositions[i]));
          EXPECT_TRUE(output.status.ok());
          EXPECT_FALSE(output.stored_differs);
          EXPECT_TRUE(SameBits(output.logits.at(0), expected[i])) << kPositions[i];
        }
        EXPECT_TRUE(text.Bytes() == before);
      }
    }
  }
}

// In the blocks that one sequence goes on writing and that others read, in groups and alone, beside
// a prefill.
TEST(QueryOnlyTest, CompanyInABatchDoesNotMatter) {
  for (const size_t num_threads : {1u, 2u, 4u}) {
    SCOPED_TRACE(num_threads);
    TestModel model(Spec(), {.num_threads = num_threads});
    Text text(model, 2), other(model, 3);
    text.Compute(0, 259);
    const Logits at_259 = text.Compute(259, 260);
    const Logits at_260 = text.Compute(260, 261);
    const Logits at_262 = text.Compute(261, 263);
    const Logits of_other = other.Compute(0, 40);

    StepPlan plan;
    plan.slices = {text.QueryOnly(260), other.Between(0, 40), text.Between(261, 263),
                   text.QueryOnly(259), text.QueryOnly(260)};
    const uint32_t all[] = {0, 2, 3, 4}, some[] = {0, 3};
    const std::vector<SharedPrefix> groupings[] = {{}, {{all, 2}}, {{some, 1}}};
    for (const auto& groups : groupings) {
      plan.shared = groups;
      const auto logits = model.Execute(plan);
      EXPECT_TRUE(SameBits(logits[0], at_260));
      EXPECT_TRUE(SameBits(logits[1], of_other));
      EXPECT_TRUE(SameBits(logits[2], at_262));
      EXPECT_TRUE(SameBits(logits[3], at_259));
      EXPECT_TRUE(SameBits(logits[4], at_260));
    }
  }
}

// Every bit of some bytes in each plane of the row, and of the whole row in one.
TEST(QueryOnlyTest, SeesEveryBitOfTheStoredRow) {
  constexpr size_t kPosition = 133;
  for (const compute::KvDtypeTraits& k : compute::KvDtypes()) {
    for (const compute::KvDtypeTraits& v : compute::KvDtypes()) {
      SCOPED_TRACE(testing::Message() << k.name << "/" << v.name);
      const model::GoldenModelSpec spec = Spec();
      TestModel model(spec, {.k_dtype = k.dtype, .v_dtype = v.dtype});
      Text text(model, 4);
      text.Compute(0, kLength);
      int num_missed = 0;
      const auto flip_all = [&](std::span<std::byte* const> bytes) {
        for (std::byte* const byte : bytes) {
          for (int bit = 0; bit < 8; ++bit) {
            *byte ^= std::byte(1u << bit);
            if (!RunSlice(model, text.QueryOnly(kPosition)).stored_differs) ++num_missed;
            *byte ^= std::byte(1u << bit);
          }
        }
      };
      for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
        for (uint32_t head = 0; head < spec.num_kv_heads; ++head) {
          const bool whole = layer == 1 && head == 0;
          const auto key = text.KeyBytes(kPosition, layer, head);
          const auto value = text.ValueBytes(kPosition, layer, head);
          flip_all(std::span(key).last(whole ? key.size() : 3));
          flip_all(std::span(value).last(whole ? value.size() : 3));
        }
      }
      EXPECT_EQ(num_missed, 0);
      EXPECT_FALSE(RunSlice(model, text.QueryOnly(kPosition)).stored_differs);
    }
  }
}

// What lies behind the row, and in the last layer what lies before it, is not its own.
TEST(QueryOnlyTest, SeesNothingElse) {
  constexpr size_t kPosition = 133;
  for (const compute::KvDtypeTraits& dtype : compute::KvDtypes()) {
    SCOPED_TRACE(dtype.name);
    const model::GoldenModelSpec spec = Spec();
    TestModel model(spec, {.k_dtype = dtype.dtype, .v_dtype = dtype.dtype});
    Text text(model, 5);
    text.Compute(0, kLength);
    const Logits expected = Copy(RunSlice(model, text.QueryOnly(kPosition)));
    const auto flip = [](std::byte* element) { *element ^= std::byte{4}; };
    for (const size_t position : {134u, 143u, 144u}) {
      for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
        for (std::byte* byte : text.KeyBytes(position, layer, 1)) flip(byte);
        for (std::byte* byte : text.ValueBytes(position, layer, 1)) flip(byte);
      }
    }
    const SliceOutput later = RunSlice(model, text.QueryOnly(kPosition));
    EXPECT_FALSE(later.stored_differs);
    EXPECT_TRUE(SameBits(later.logits.at(0), expected));

    for (std::byte* byte : text.ValueBytes(kPosition - 1, spec.num_layers - 1, 1)) flip(byte);
    const SliceOutput earlier = RunSlice(model, text.QueryOnly(kPosition));
    EXPECT_FALSE(earlier.stored_differs);
    EXPECT_FALSE(SameBits(earlier.logits.at(0), expected));
  }
}

// A wrong bit in one slice's row is that slice's alone, and its logits come all the same.
TEST(QueryOnlyTest, ADifferenceIsToldOfItsSliceAlone) {
  TestModel model(Spec(), {.num_threads = 2});
  Text text(model, 6), other(model, 7);
  text.Compute(0, 140);
  other.Compute(0, 130);
  const Logits at_129 = Copy(RunSlice(model, text.QueryOnly(129)));
  const Logits of_other = Copy(RunSlice(model, other.QueryOnly(129)));
  *text.KeyBytes(139, 0, 1)[3] ^= std::byte{1};
  StepPlan plan;
  plan.slices = {text.QueryOnly(129), text.QueryOnly(139), other.QueryOnly(129)};
  const uint32_t group[] = {0, 1};
  plan.shared = {{group, 1}};
  const auto outputs = model.executor().Execute(plan);
  ASSERT_TRUE(outputs.ok());
  EXPECT_FALSE((*outputs)[0].stored_differs);
  EXPECT_TRUE((*outputs)[1].stored_differs);
  EXPECT_FALSE((*outputs)[2].stored_differs);
  EXPECT_TRUE((*outputs)[1].status.ok());
  EXPECT_EQ((*outputs)[1].logits.size(), 1u);
  EXPECT_TRUE(SameBits((*outputs)[0].logits.at(0), at_129));
  EXPECT_TRUE(SameBits((*outputs)[2].logits.at(0), of_other));
}

TEST(QueryOnlyTest, MayWantNoLogitsAndHasOneToken) {
  TestModel model(Spec());
  Text text(model, 8);
  text.Compute(0, 20);
  Slice slice = text.QueryOnly(19);
  slice.num_logits = 0;
  *text.ValueBytes(19, 1, 0)[0] ^= std::byte{1};
  const SliceOutput output = RunSlice(model, slice);
  EXPECT_TRUE(output.status.ok() && output.stored_differs && output.logits.empty());

  StepPlan plan;
  plan.slices = {text.Between(18, 20)};
  plan.slices[0].query_only = true;
  const auto outputs = model.executor().Execute(plan);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().message, "a query-only slice has one token, not 2");
}

}  // namespace
}  // namespace kvern::engine
