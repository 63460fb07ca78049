// One answer: the logits of every position, bit for bit, however they come about.
#include "engine/exec/cpu.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/isa.h"
#include "engine/exec/exec_test_util.h"

namespace kvern::engine {
namespace {

using compute::KvDtype;
using compute::QuantType;
using model::GoldenModelSpec;

GoldenModelSpec Spec(std::string architecture, std::vector<QuantType> types) {
  GoldenModelSpec spec;
  spec.architecture = std::move(architecture);
  spec.types = std::move(types);
  spec.vocab_size = 75;
  return spec;
}

// One KV head for 7 query heads, and widths that fill no vector.
GoldenModelSpec Odd() {
  GoldenModelSpec spec = Spec("llama", {QuantType::kF32});
  spec.hidden = 70;
  spec.ffn_hidden = 50;
  spec.num_heads = 7;
  spec.num_kv_heads = 1;
  spec.head_dim = 20;
  return spec;
}

GoldenModelSpec Extreme() {
  GoldenModelSpec spec = Odd();
  spec.extreme = true;
  return spec;
}

// More query heads on one KV head than attention takes at once.
GoldenModelSpec ManyHeads() {
  GoldenModelSpec spec = Spec("qwen2", {QuantType::kQ8_0});
  spec.num_heads = 40;
  spec.num_kv_heads = 1;
  spec.head_dim = 8;
  return spec;
}

// Float weights of a width that no quantised input has, beside quantised ones.
GoldenModelSpec MixedInputs() {
  GoldenModelSpec spec = Spec("llama", {QuantType::kF32, QuantType::kF16, QuantType::kBf16,
                                        QuantType::kF32, QuantType::kF32, QuantType::kF16,
                                        QuantType::kF32, QuantType::kQ8_0, QuantType::kF32});
  spec.num_layers = 1;
  spec.hidden = 150;
  spec.ffn_hidden = 96;
  spec.num_heads = 3;
  spec.num_kv_heads = 1;
  spec.head_dim = 10;
  return spec;
}

GoldenModelSpec KQuants() {
  GoldenModelSpec spec =
      Spec("qwen3", {QuantType::kQ6_K, QuantType::kQ4_K, QuantType::kQ5_K, QuantType::kF32});
  spec.num_layers = 1;
  spec.hidden = spec.ffn_hidden = 256;
  spec.num_heads = 4;
  spec.head_dim = 64;
  return spec;
}

// The instruction sets of this CPU but scalar, which is slow, and stands in where there is no
// other.
std::vector<std::string> FastIsas() {
  std::vector<std::string> names;
  for (const compute::Isa& isa : compute::Isas()) {
    if (isa.supported() && isa.name != "scalar") names.emplace_back(isa.name);
  }
  if (names.empty()) names.emplace_back("scalar");
  return names;
}

struct NamedSpec {
  std::string name;
  GoldenModelSpec spec;
};

void PrintTo(const NamedSpec& named, std::ostream* out) { *out << named.name; }

class OneAnswerTest : public testing::TestWithParam<NamedSpec> {
 protected:
  const GoldenModelSpec& spec() const { return GetParam().spec; }
};

INSTANTIATE_TEST_SUITE_P(
    Models, OneAnswerTest,
    testing::Values(NamedSpec{"LlamaF32Odd", Odd()}, NamedSpec{"LlamaExtreme", Extreme()},
                    NamedSpec{"LlamaQ4", Spec("llama", {QuantType::kQ4_1, QuantType::kQ4_0})},
                    NamedSpec{"LlamaMixedInputs", MixedInputs()},
                    NamedSpec{"Qwen2ManyHeads", ManyHeads()},
                    NamedSpec{"Qwen2Q5F16",
                              Spec("qwen2", {QuantType::kQ5_0, QuantType::kF16, QuantType::kQ5_1})},
                    NamedSpec{"Qwen3KQuants", KQuants()},
                    NamedSpec{"Qwen3Bf16", Spec("qwen3", {QuantType::kBf16})}),
    [](const auto& info) { return info.param.name; });

// Every strategy × K dtype × V dtype; the chunk sizes take turns.
TEST_P(OneAnswerTest, StrategiesDtypesAndChunks) {
  constexpr size_t kNumTokens = 40;
  constexpr size_t kChunks[] = {1, 7, 16, 100};
  const auto tokens = RandomTokens(1, kNumTokens, spec().vocab_size);
  size_t turn = 0;
  for (const compute::KvDtypeTraits& k : compute::KvDtypes()) {
    for (const compute::KvDtypeTraits& v : compute::KvDtypes()) {
      TestModel model(spec(), {.k_dtype = k.dtype, .v_dtype = v.dtype});
      const Logits expected = model.Reference(tokens);
      for (const kv::Strategy& strategy : kv::Strategies()) {
        const size_t chunk = kChunks[turn++ % std::size(kChunks)];
        SCOPED_TRACE(testing::Message()
                     << strategy.name << " " << k.name << "/" << v.name << " chunks of " << chunk);
        const auto cache = model.MakeCache(strategy);
        EXPECT_TRUE(SameBits(model.Append(*cache, tokens, chunk), expected));
      }
      ++turn;  // so that no strategy always meets the same chunk
    }
  }
}

// Without a cache the whole history is computed anew for every token.
TEST_P(OneAnswerTest, RecomputingEqualsCaching) {
  TestModel model(spec());
  const auto tokens = RandomTokens(2, 36, spec().vocab_size);
  const Logits expected = model.Reference(tokens);
  const auto cache = model.MakeCache(**kv::FindStrategy("none"));
  for (size_t end = 30; end <= tokens.size(); ++end) {
    cache->Truncate(0);
    const Logits logits = model.Append(*cache, std::span(tokens).first(end), end);
    EXPECT_TRUE(SameBits(logits, model.Positions(expected, 0, end)));
  }
}

TEST_P(OneAnswerTest, ThreadsDoNotMatter) {
  const auto tokens = RandomTokens(3, 45, spec().vocab_size);
  const Logits expected = TestModel(spec()).Reference(tokens);
  for (const size_t num_threads : {2u, 4u}) {
    TestModel model(spec(), {.num_threads = num_threads});
    EXPECT_TRUE(SameBits(model.Reference(tokens), expected)) << num_threads;
    const auto cache = model.MakeCache();
    EXPECT_TRUE(SameBits(model.Append(*cache, tokens, 3), expected)) << num_threads;
  }
}

TEST_P(OneAnswerTest, InstructionSetsDoNotMatter) {
  const auto tokens = RandomTokens(4, 20, spec().vocab_size);
  const Logits expected = TestModel(spec(), {.isa = "scalar"}).Reference(tokens);
  for (const std::string& isa : FastIsas()) {
    TestModel model(spec(), {.isa = isa});
    EXPECT_TRUE(SameBits(model.Reference(tokens), expected)) << isa;
  }
}

// A caller that flushes subnormals and rounds toward zero, from loading on.
TEST_P(OneAnswerTest, TheCallersFloatingPointModeDoesNotMatter) {
  const auto tokens = RandomTokens(5, 20, spec().vocab_size);
  const Logits expected = TestModel(spec()).Reference(tokens);
  const unsigned saved = _mm_getcsr();
  const unsigned hostile =
      saved | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON | _MM_ROUND_TOWARD_ZERO;
  _mm_setcsr(hostile);
  const Logits logits = TestModel(spec(), {.num_threads = 2}).Reference(tokens);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(after & ~_MM_EXCEPT_MASK, hostile & ~_MM_EXCEPT_MASK);
  EXPECT_TRUE(SameBits(logits, expected));
}

// Long enough for three KV chunks.
TEST(OneAnswerLongTest, ChunksAndStrategies) {
  for (const GoldenModelSpec& spec : {Odd(), Spec("qwen2", {QuantType::kQ4_1})}) {
    TestModel model(spec, {.num_threads = 2});
    const auto tokens = RandomTokens(6, 275, spec.vocab_size);
    const Logits expected = model.Reference(tokens);
    size_t turn = 0;
    for (const size_t chunk : {1u, 7u, 16u, 100u}) {
      const kv::Strategy& strategy = kv::Strategies()[turn++ % kv::Strategies().size()];
      const auto cache = model.MakeCache(strategy);
      EXPECT_TRUE(SameBits(model.Append(*cache, tokens, chunk), expected))
          << strategy.name << " chunks of " << chunk;
    }
  }
}

// Tokens rolled back and computed again, over the stale rows of other tokens.
TEST_P(OneAnswerTest, RollbackLeavesNoTrace) {
  for (const kv::Strategy& strategy : kv::Strategies()) {
    TestModel model(spec());
    const auto tokens = RandomTokens(7, 40, spec().vocab_size);
    const auto drafts = RandomTokens(8, 40, spec().vocab_size);
    const Logits expected = model.Reference(tokens);
    const auto cache = model.MakeCache(strategy);
    model.Append(*cache, std::span(tokens).first(21), 21);
    for (const size_t keep : {21u, 17u, 16u, 3u}) {
      cache->Truncate(keep);
      model.Append(*cache, std::span(drafts).first(15), 15);
      cache->Truncate(keep);
      const Logits logits = model.Append(*cache, std::span(tokens).subspan(keep, 6), 5);
      EXPECT_TRUE(SameBits(logits, model.Positions(expected, keep, keep + 6)))
          << strategy.name << " from " << keep;
    }
  }
}

// A sequence whose pending step can be put into any batch. Starts with `computed` of its tokens.
class Sequence {
 public:
  Sequence(TestModel& model, std::vector<TokenId> tokens, size_t computed)
      : tokens_(std::move(tokens)), computed_(computed), cache_(model.MakeCache()) {
    if (computed > 0) model.Append(*cache_, std::span(tokens_).first(computed), 64);
    EXPECT_TRUE(cache_->Extend(tokens_.size() - computed).ok());
    view_ = cache_->View();
  }

  Slice slice() const {
    const auto tokens = std::span(tokens_).subspan(computed_);
    return {.tokens = tokens,
            .first_position = static_cast<uint32_t>(computed_),
            .views = {&view_, 1},
            .num_logits = static_cast<uint32_t>(tokens.size())};
  }

  // `expected` has the logits of all its positions.
  void Check(const TestModel& model, const Logits& logits, const Logits& expected) const {
    EXPECT_TRUE(SameBits(logits, model.Positions(expected, computed_, tokens_.size())))
        << tokens_.size() << " tokens, " << computed_ << " of them before";
  }

 private:
  std::vector<TokenId> tokens_;
  size_t computed_;
  std::unique_ptr<kv::SequenceCache> cache_;
  PagedView view_;
};

// Prefills and decodes of several lengths, alone and in batches, in several orders, by instruction
// set and number of threads. What is expected is one thread's scalar answer to each alone.
TEST_P(OneAnswerTest, CompanyInABatchDoesNotMatter) {
  struct Shape {
    size_t length, computed;
  };
  constexpr Shape kShapes[] = {{30, 29}, {17, 0}, {33, 16}, {2, 1}, {50, 49}, {9, 3}};
  const auto tokens = [&](const Shape& shape) {
    return RandomTokens(20 + shape.length, shape.length, spec().vocab_size);
  };
  std::vector<Logits> expected;
  TestModel scalar(spec(), {.isa = "scalar"});
  for (const Shape& shape : kShapes) expected.push_back(scalar.Reference(tokens(shape)));
  size_t turn = 0;
  for (const std::string& isa : FastIsas()) {
    for (const size_t num_threads : {1u, 2u, 4u}) {
      for (const size_t num_sequences : {1u, 2u, 6u}) {
        SCOPED_TRACE(testing::Message() << isa << ", " << num_threads << " threads, "
                                        << num_sequences << " sequences, turn " << turn);
        TestModel model(spec(), {.num_threads = num_threads, .isa = isa});
        std::vector<std::unique_ptr<Sequence>> sequences;
        StepPlan plan;
        for (size_t i = 0; i < num_sequences; ++i) {
          const Shape& shape = kShapes[(i * 5 + turn) % std::size(kShapes)];
          sequences.push_back(std::make_unique<Sequence>(model, tokens(shape), shape.computed));
          plan.slices.push_back(sequences.back()->slice());
        }
        const auto logits = model.Execute(plan);
        for (size_t i = 0; i < sequences.size(); ++i) {
          sequences[i]->Check(model, logits[i], expected[(i * 5 + turn) % std::size(kShapes)]);
        }
        ++turn;
      }
    }
  }
}

// Two levels of forks share counted blocks, full ones and an open one; all go on in one batch.
TEST_P(OneAnswerTest, ForkedTablesEqualPrivateOnes) {
  constexpr size_t kShared = 37, kLength = 50;
  const auto common = RandomTokens(9, kShared, spec().vocab_size);
  for (const kv::Strategy& strategy : kv::Strategies()) {
    TestModel model(spec());
    std::vector<std::unique_ptr<kv::SequenceCache>> caches;
    caches.push_back(model.MakeCache(strategy));
    model.Append(*caches[0], common, 16);
    caches.push_back(std::move(*caches[0]->Fork()));
    caches.push_back(std::move(*caches[1]->Fork()));
    std::vector<std::vector<TokenId>> tokens;
    std::vector<PagedView> views;
    for (size_t i = 0; i < caches.size(); ++i) {
      tokens.push_back(common);
      const auto own = RandomTokens(30 + i, kLength - kShared, spec().vocab_size);
      tokens[i].insert(tokens[i].end(), own.begin(), own.end());
      ASSERT_TRUE(caches[i]->Extend(own.size()).ok());
      views.push_back(caches[i]->View());
    }
    StepPlan plan;
    for (size_t i = 0; i < caches.size(); ++i) {
      plan.slices.push_back({.tokens = std::span(tokens[i]).subspan(kShared),
                             .first_position = kShared,
                             .views = {&views[i], 1},
                             .num_logits = kLength - kShared});
    }
    const auto logits = model.Execute(plan);
    for (size_t i = 0; i < caches.size(); ++i) {
      const Logits expected = model.Reference(tokens[i]);
      EXPECT_TRUE(SameBits(logits[i], model.Positions(expected, kShared, kLength)))
          << strategy.name << " fork " << i;
    }
  }
}

// Blocks in an order of their own, with other sequences' bytes around them.
TEST(OneAnswerLongTest, ScatteredBlocks) {
  TestModel model(Odd());
  const auto tokens = RandomTokens(10, 275, model.vocab_size());
  const size_t block_bytes = model.opened().layout().block_bytes();
  constexpr size_t kNumBlocks = 18;
  auto memory = std::move(AlignedBuffer::Create(2 * kNumBlocks * block_bytes)).value();
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < kNumBlocks; ++i) {
    blocks.push_back(memory.data() + 2 * (i * 7 % kNumBlocks) * block_bytes);
    std::fill_n(blocks.back() + block_bytes, block_bytes, std::byte{0x5A});
  }
  const PagedView view = {blocks.data(), kNumBlocks};
  StepPlan plan;
  plan.slices.push_back(
      {.tokens = tokens, .first_position = 0, .views = {&view, 1}, .num_logits = 275});
  EXPECT_TRUE(SameBits(model.Execute(plan)[0], model.Reference(tokens)));
}

// Forks of one long prompt, whose common chunks may be read once for all: by instruction set and
// number of threads.
class SharedChunksTest : public testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  static constexpr size_t kCommon = 260;

  SharedChunksTest()
      : model_(Odd(), {.num_threads = std::get<1>(GetParam()), .isa = std::get<0>(GetParam())}) {
    prompt_ = model_.MakeCache();
    common_ = RandomTokens(11, kCommon, model_.vocab_size());
    model_.Append(*prompt_, common_, 100);
  }

  void AddFork(size_t num_new) {
    Fork& fork = forks_.emplace_back();
    fork.cache = std::move(*prompt_->Fork());
    fork.tokens = RandomTokens(40 + forks_.size(), num_new, model_.vocab_size());
    EXPECT_TRUE(fork.cache->Extend(num_new).ok());
    fork.view = fork.cache->View();
  }

  struct Group {
    std::vector<uint32_t> slices;
    uint32_t num_chunks;
  };

  static std::vector<SharedPrefix> Prefixes(const std::vector<Group>& groups) {
    std::vector<SharedPrefix> prefixes;
    for (const Group& group : groups) prefixes.push_back({group.slices, group.num_chunks});
    return prefixes;
  }

  // The logits of all forks, in one step with these groups.
  std::vector<Logits> Run(const std::vector<Group>& groups) {
    StepPlan plan;
    for (const Fork& fork : forks_) {
      plan.slices.push_back({.tokens = fork.tokens,
                             .first_position = kCommon,
                             .views = {&fork.view, 1},
                             .num_logits = static_cast<uint32_t>(fork.tokens.size())});
    }
    plan.shared = Prefixes(groups);
    return model_.Execute(plan);
  }

  struct Fork {
    std::unique_ptr<kv::SequenceCache> cache;
    std::vector<TokenId> tokens;
    PagedView view;
  };
  TestModel model_;
  std::vector<TokenId> common_;
  std::unique_ptr<kv::SequenceCache> prompt_;
  std::vector<Fork> forks_;
};

INSTANTIATE_TEST_SUITE_P(Cpu, SharedChunksTest,
                         testing::Combine(testing::ValuesIn(FastIsas()), testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "On" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(SharedChunksTest, GroupsDoNotMatter) {
  // 7 heads on one KV head: a tile has 4 rows, so that slices straddle tiles.
  for (const size_t num_new : {1u, 1u, 3u, 1u, 9u, 1u, 2u, 5u}) AddFork(num_new);
  const auto expected = Run({});
  for (size_t i = 0; i < forks_.size(); ++i) {
    std::vector<TokenId> tokens = common_;
    tokens.insert(tokens.end(), forks_[i].tokens.begin(), forks_[i].tokens.end());
    const Logits alone = model_.Reference(tokens);
    EXPECT_TRUE(SameBits(expected[i], model_.Positions(alone, kCommon, tokens.size()))) << i;
  }
  const std::vector<Group> kGroupings[] = {
      {{{0, 1, 2, 3, 4, 5, 6, 7}, 1}},
      {{{0, 1, 2, 3, 4, 5, 6, 7}, 2}},
      {{{0, 1, 3, 5}, 2}},
      {{{2, 4}, 2}, {{0, 7}, 1}, {{1, 3, 5}, 2}},
      {{{6}, 2}},
      {{{3, 4}, 0}},
  };
  for (const auto& groups : kGroupings) {
    const auto logits = Run(groups);
    for (size_t i = 0; i < forks_.size(); ++i) {
      EXPECT_TRUE(SameBits(logits[i], expected[i])) << "slice " << i;
    }
  }
}

TEST_P(SharedChunksTest, GroupsThatAreNoneAreRefused) {
  AddFork(1);
  AddFork(2);
  const auto cache = model_.MakeCache();
  model_.Append(*cache, common_, 260);  // the same tokens in other blocks
  ASSERT_TRUE(cache->Extend(1).ok());
  const PagedView other = cache->View();
  StepPlan plan;
  for (const PagedView* view : {&std::as_const(forks_[0].view), &other}) {
    plan.slices.push_back(
        {.tokens = std::span(common_).first(1), .first_position = kCommon, .views = {view, 1}});
  }
  const std::vector<Group> wrong = {
      {{0, 1}, 1}, {{0}, 3}, {{0, 2}, 1}, {{0, 0}, 1}, {{0}, 1u << 30}};
  for (const SharedPrefix& group : Prefixes(wrong)) {
    plan.shared = {group};
    const auto outputs = model_.executor().Execute(plan);
    ASSERT_FALSE(outputs.ok());
    EXPECT_EQ(outputs.error().code, ErrorCode::kInvalidArgument);
  }
}

// A token whose embedding is infinite fails its own slice and no other.
TEST(NonFiniteTest, FailsItsSliceAlone) {
  constexpr TokenId kBad{5};
  for (const QuantType others : {QuantType::kF32, QuantType::kQ8_0}) {
    GoldenModelSpec spec = Odd();
    if (others != QuantType::kF32) spec = Spec("qwen3", {QuantType::kF32, others});
    spec.infinite_token = kBad;
    for (const size_t num_threads : {1u, 2u}) {
      TestModel model(spec, {.num_threads = num_threads});
      auto prompt = RandomTokens(12, 130, spec.vocab_size);
      std::replace(prompt.begin(), prompt.end(), kBad, TokenId{6});
      const auto cache = model.MakeCache();
      model.Append(*cache, prompt, 130);
      const auto fork = std::move(*cache->Fork());
      ASSERT_TRUE(cache->Extend(1).ok() && fork->Extend(3).ok());
      const PagedView good = cache->View(), bad = fork->View();
      const std::vector<TokenId> good_token = {TokenId{7}};
      const std::vector<TokenId> bad_tokens = {TokenId{8}, kBad, TokenId{9}};
      StepPlan plan;
      plan.slices.push_back({bad_tokens, 130, {&bad, 1}, 3, nullptr});
      plan.slices.push_back({good_token, 130, {&good, 1}, 1, nullptr});
      const uint32_t both[] = {0, 1};
      plan.shared = {{both, 1}};
      const auto outputs = model.executor().Execute(plan);
      ASSERT_TRUE(outputs.ok());
      ASSERT_FALSE((*outputs)[0].status.ok());
      EXPECT_EQ((*outputs)[0].status.error().code, ErrorCode::kNonFinite);
      ASSERT_TRUE((*outputs)[1].status.ok());
      const Logits logits((*outputs)[1].logits[0].begin(), (*outputs)[1].logits[0].end());

      prompt.push_back(good_token[0]);
      EXPECT_TRUE(SameBits(logits, model.Positions(model.Reference(prompt), 130, 131)));
    }
  }
}

TEST(NonFiniteTest, APrefillWithoutLogitsFailsToo) {
  GoldenModelSpec spec = Odd();
  spec.infinite_token = TokenId{5};
  TestModel model(spec);
  const auto cache = model.MakeCache();
  ASSERT_TRUE(cache->Extend(6).ok());
  const PagedView view = cache->View();
  const std::vector<TokenId> tokens(6, TokenId{5});
  StepPlan plan;
  plan.slices.push_back({.tokens = tokens, .first_position = 0, .views = {&view, 1}});
  EXPECT_FALSE((*model.executor().Execute(plan))[0].status.ok());
}

TEST(PlanTest, WhatBreaksTheLimitsIsRefused) {
  TestModel model(Odd(), {.context = 32});
  const auto cache = model.MakeCache();
  ASSERT_TRUE(cache->Extend(16).ok());
  const PagedView view = cache->View();
  const std::vector<TokenId> tokens(33, TokenId{1});
  const std::vector<TokenId> unknown = {TokenId{75}};
  const std::span<const TokenId> all(tokens);
  const SampleRequest sample = {};
  const auto error = [&](const Slice& slice) {
    StepPlan plan;
    plan.slices.push_back(slice);
    const auto outputs = model.executor().Execute(plan);
    if (outputs.ok()) return std::string("no error");
    EXPECT_EQ(outputs.error().code, ErrorCode::kInvalidArgument);
    return outputs.error().message;
  };
  EXPECT_EQ(error({unknown, 0, {&view, 1}, 0, nullptr}),
            "token 75 is outside the vocabulary of 75");
  EXPECT_EQ(error({all, 0, {&view, 1}, 0, nullptr}),
            "a sequence of 33 tokens exceeds the context of 32");
  EXPECT_EQ(error({all.first(2), 31, {&view, 1}, 0, nullptr}),
            "a sequence of 33 tokens exceeds the context of 32");
  EXPECT_EQ(error({all.first(17), 0, {&view, 1}, 0, nullptr}),
            "a sequence of 17 tokens has too few KV blocks");
  EXPECT_NE(error({all.first(1), 0, {}, 0, nullptr}), "no error");
  EXPECT_NE(error({all.first(0), 0, {&view, 1}, 0, nullptr}), "no error");
  EXPECT_NE(error({all.first(2), 0, {&view, 1}, 3, nullptr}), "no error");
  EXPECT_NE(error({all.first(2), 0, {&view, 1}, 0, &sample}), "no error");

  StepPlan plan;
  for (int i = 0; i < 3; ++i) plan.slices.push_back({all.first(16), 0, {&view, 1}, 0, nullptr});
  EXPECT_EQ(model.executor().Execute(plan).error().message,
            "a step of 48 tokens exceeds the limit of 32");
  plan.slices.clear();
  EXPECT_TRUE(model.executor().Execute(plan)->empty());
}

TEST(PlanTest, SamplesAfterTheLastToken) {
  TestModel model(Odd());
  const auto tokens = RandomTokens(13, 20, model.vocab_size());
  const Logits logits = model.Reference(tokens);
  const auto last = model.Positions(logits, 19, 20);
  const auto cache = model.MakeCache();
  ASSERT_TRUE(cache->Extend(20).ok());
  const PagedView view = cache->View();
  SamplingParams greedy;
  greedy.temperature = 0;
  const SampleRequest sample = {&greedy, tokens, tokens.size(), 0};
  StepPlan plan;
  plan.slices.push_back({tokens, 0, {&view, 1}, 1, &sample});
  const auto outputs = model.executor().Execute(plan);
  ASSERT_TRUE(outputs.ok() && (*outputs)[0].status.ok());
  EXPECT_EQ(static_cast<size_t>((*outputs)[0].tokens[0].id),
            static_cast<size_t>(std::ranges::max_element(last) - last.begin()));
}

}  // namespace
}  // namespace kvern::engine
