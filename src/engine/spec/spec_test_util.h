// What the tests of proposers share: a fake model whose logits are a hash of every K/V row that it
// reads through the block table, and decoding with drafts as rule G6 has it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/executor.h"
#include "engine/proposer.h"
#include "engine/spec/draft.h"
#include "kv/kv_cache_test_util.h"

namespace kvern::engine {

using Text = std::vector<TokenId>;

// A row is a token and a hash of all tokens up to it, in the layout of kv/test_support.h. So a
// wrong, stale or foreign block changes the logits of every later token.
class FakeExecutor final : public Executor {
 public:
  struct Options {
    uint32_t vocab_size = 24;
    uint32_t max_positions = 400;
    uint32_t max_step_tokens = 64;
    uint64_t seed = 1;
    size_t memory = SIZE_MAX;  // rows that the logits depend on
    // All hold the same rows; those of the last are read.
    std::vector<kv::GroupSpec> groups = {kv::TestEngine::FullGroup()};
  };

  explicit FakeExecutor(const Options& options)
      : options_(options),
        info_({.vocab_size = options.vocab_size,
               .max_positions = options.max_positions,
               .max_step_tokens = options.max_step_tokens,
               .groups = options.groups,
               .weight_bytes = 0,
               .scratch_bytes = 0}) {}

  size_t num_steps = 0;
  size_t num_computed = 0;  // tokens
  size_t num_slices_max = 0;
  std::optional<TokenId> poison;  // a slice with it fails

  const ExecutorInfo& info() const override { return info_; }

  Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) override {
    ++num_steps;
    num_slices_max = std::max(num_slices_max, plan.slices.size());
    outputs_.clear();
    logits_.clear();
    size_t num_tokens = 0;
    for (const Slice& slice : plan.slices) {
      num_tokens += slice.tokens.size();
      outputs_.push_back(Compute(slice));
    }
    EXPECT_LE(num_tokens, info_.max_step_tokens);
    num_computed += num_tokens;
    return std::span<const SliceOutput>(outputs_);
  }

 private:
  struct Row {
    uint32_t token;
    uint32_t chain;
  };

  static std::byte* At(const PagedView& view, size_t position, size_t i) {
    return view.blocks[position / kBlockTokens] + i * kBlockTokens + position % kBlockTokens;
  }
  static Row Read(const PagedView& view, size_t position) {
    std::byte bytes[sizeof(Row)];
    for (size_t i = 0; i < sizeof(Row); ++i) bytes[i] = *At(view, position, i);
    Row row;
    std::memcpy(&row, bytes, sizeof(Row));
    return row;
  }
  static void Write(const PagedView& view, size_t position, const Row& row) {
    std::byte bytes[sizeof(Row)];
    std::memcpy(bytes, &row, sizeof(Row));
    for (size_t i = 0; i < sizeof(Row); ++i) *At(view, position, i) = bytes[i];
  }

  SliceOutput Compute(const Slice& slice) {
    const PagedView& view = slice.views.back();
    const size_t end = slice.first_position + slice.tokens.size();
    EXPECT_LE(end, view.num_blocks * size_t{kBlockTokens});
    EXPECT_LE(end, info_.max_positions);
    SliceOutput output;
    for (size_t i = 0; i < slice.tokens.size(); ++i) {
      const size_t position = slice.first_position + i;
      const uint32_t before = position == 0 ? 7 : Read(view, position - 1).chain;
      const auto token = static_cast<uint32_t>(slice.tokens[i]);
      EXPECT_LT(token, info_.vocab_size);
      const uint32_t chain[] = {before, token};
      const Row row = {token, static_cast<uint32_t>(Hash64(std::as_bytes(std::span(chain)), 1))};
      for (const PagedView& group : slice.views) Write(group, position, row);
      if (poison == slice.tokens[i]) output.status = Errorf(ErrorCode::kNonFinite, "poison");
    }
    if (!output.status.ok()) return output;
    for (size_t i = slice.tokens.size() - slice.num_logits; i < slice.tokens.size(); ++i) {
      output.logits.push_back(Logits(view, slice.first_position + i));
    }
    if (slice.sample != nullptr) SampleInto(slice, output);
    return output;
  }

  std::span<const float> Logits(const PagedView& view, size_t position) {
    uint64_t hash = options_.seed;
    for (size_t i = position + 1 - std::min(options_.memory, position + 1); i <= position; ++i) {
      Row row = Read(view, i);
      if (options_.memory <= position) row.chain = 0;
      hash = Hash64(std::as_bytes(std::span(&row, 1)), hash);
    }
    SplitMix64 random(hash);
    auto& logits = logits_.emplace_back(std::make_unique<std::vector<float>>());
    for (uint32_t i = 0; i < info_.vocab_size; ++i) {
      logits->push_back(static_cast<float>(random.Uniform() * 8));
    }
    return *logits;
  }

  static void SampleInto(const Slice& slice, SliceOutput& output) {
    const SampleRequest& request = *slice.sample;
    for (size_t i = 0; i < slice.num_logits; ++i) {
      const size_t num_later = slice.num_logits - 1 - i;
      const size_t next = slice.tokens.size() - num_later;
      const auto history = request.history.first(request.history.size() - num_later);
      EXPECT_EQ(history.size(), slice.first_position + next);
      const TokenId token = Sample(output.logits[i], *request.params, history);
      output.tokens.push_back({.id = token, .logprob = 0, .top = {}});
      if (num_later > 0 && token != slice.tokens[next]) return;
    }
  }

  // Keyed by the position, as the real sampler is: the highest of penalised logits and noise.
  static TokenId Sample(std::span<const float> logits, const SamplingParams& params,
                        std::span<const TokenId> history) {
    SplitMix64 random(params.seed + history.size());
    std::vector<double> scores;
    for (uint32_t id = 0; id < logits.size(); ++id) {
      const auto window = history.last(std::min<size_t>(history.size(), 8));
      const auto uses = static_cast<double>(std::ranges::count(window, TokenId{id}));
      scores.push_back(logits[id] + 3 * params.temperature * random.Uniform() -
                       params.frequency_penalty * uses);
    }
    return TokenId(std::ranges::max_element(scores) - scores.begin());
  }

  const Options options_;
  const ExecutorInfo info_;
  std::vector<SliceOutput> outputs_;
  std::vector<std::unique_ptr<std::vector<float>>> logits_;
};

// A fake model and its own KV memory.
struct FakeModel {
  FakeModel(const FakeExecutor::Options& options, size_t num_blocks)
      : engine(num_blocks, {.groups = options.groups}), executor(options) {}

  DraftModel parts() {
    DraftModel parts;
    parts.executor = &executor;
    parts.cache = engine.cache.get();
    parts.ns = engine.ns;
    return parts;
  }

  kv::TestEngine engine;
  FakeExecutor executor;
};

inline SamplingParams WithTemperature(float temperature) {
  SamplingParams sampling;
  sampling.temperature = temperature;
  return sampling;
}

struct Decoded {
  std::vector<Text> texts;  // prompts and completions
  size_t num_steps = 0;     // of decoding
  size_t drafted = 0;
  size_t accepted = 0;
};

// One sequence of a batch that decodes.
struct DecodingSequence {
  SequenceKey key;
  Text text;
  size_t num_prompt_tokens;
  size_t end;  // of its text
  kv::Sequence rows;
  Text draft = {};

  bool is_live() const { return text.size() < end; }
};

// One step: samples after the text and after each token of the draft, as long as they agree.
inline void Verify(const DraftModel& target, const SamplingParams& sampling, DecodingSequence& s) {
  const size_t length = s.text.size();
  s.text.insert(s.text.end(), s.draft.begin(), s.draft.end());
  const auto first = static_cast<uint32_t>(s.rows.length());
  const auto fresh = std::span(s.text).subspan(first);
  ASSERT_TRUE(s.rows.Append(fresh).ok());
  std::vector<PagedView> views;
  for (size_t group = 0; group < target.executor->info().groups.size(); ++group) {
    views.push_back(s.rows.View(static_cast<kv::GroupId>(group)));
  }
  const SampleRequest sample = {&sampling, s.text, s.num_prompt_tokens, 0};
  StepPlan plan;
  plan.slices.push_back({.tokens = fresh,
                         .first_position = first,
                         .views = views,
                         .num_logits = static_cast<uint32_t>(s.draft.size() + 1),
                         .sample = &sample});
  const auto outputs = target.executor->Execute(plan);
  ASSERT_TRUE(outputs.ok() && (*outputs)[0].status.ok());
  s.text.resize(length);
  for (const SampledToken& token : (*outputs)[0].tokens) s.text.push_back(token.id);
  ASSERT_TRUE(s.rows.Truncate(s.text.size() - 1).ok());
  s.rows.Commit(s.text.size() - 1);
}

inline std::vector<DecodingSequence> Begin(const DraftModel& target,
                                           const std::vector<Text>& prompts, size_t num_tokens) {
  std::vector<DecodingSequence> batch;
  for (const Text& prompt : prompts) {
    kv::Lease lease = target.cache->Lookup({.ns = target.ns, .tokens = prompt, .use_cache = false});
    kv::Sequence rows = std::move(target.cache->Admit(lease)).value();
    batch.push_back({SequenceKey{batch.size()}, prompt, prompt.size(), prompt.size() + num_tokens,
                     std::move(rows)});
  }
  return batch;
}

// Decodes all prompts together until each has `num_tokens` more, on `target`; with drafts of
// `proposer`, if there is one.
inline Decoded Decode(const DraftModel& target, Proposer* proposer,
                      const std::vector<Text>& prompts, const SamplingParams& sampling,
                      size_t num_tokens) {
  constexpr size_t kMaxDraft = 5;
  std::vector<DecodingSequence> batch = Begin(target, prompts, num_tokens);
  Decoded result;
  while (std::ranges::any_of(batch, &DecodingSequence::is_live) && !testing::Test::HasFailure()) {
    std::vector<DraftRequest> requests;
    for (DecodingSequence& s : batch) {
      s.draft.clear();
      if (s.text.size() + 1 >= s.end) continue;
      requests.push_back({s.key, s.text, std::min(kMaxDraft, s.end - s.text.size() - 1), &s.draft});
    }
    if (proposer != nullptr) proposer->Propose(requests);
    for (const DraftRequest& request : requests) {
      EXPECT_LE(request.draft->size(), request.max_draft);
    }
    for (DecodingSequence& s : batch) {
      if (!s.is_live()) continue;
      const size_t length = s.text.size();
      Verify(target, sampling, s);
      result.drafted += s.draft.size();
      result.accepted += s.text.size() - length - 1;
      if (!s.is_live() && proposer != nullptr) proposer->Forget(s.key);
    }
    ++result.num_steps;
  }
  for (DecodingSequence& s : batch) result.texts.push_back(std::move(s.text));
  return result;
}

}  // namespace kvern::engine
