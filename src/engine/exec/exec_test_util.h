// What the tests of the CPU executor share: an opened golden model, and steps on sequences of it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/exec/cpu.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"
#include "model/golden_model.h"

namespace kvern::engine {

using Logits = std::vector<float>;  // of consecutive positions, [positions][vocabulary]

inline std::vector<TokenId> RandomTokens(uint64_t seed, size_t count, uint32_t vocab_size) {
  SplitMix64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = TokenId(random.Below(vocab_size));
  return tokens;
}

// memcmp: -0 and +0 differ.
inline testing::AssertionResult SameBits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " logits, not " << b.size();
  }
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return testing::AssertionSuccess();
  size_t i = 0;
  while (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) ++i;
  return testing::AssertionFailure()
         << "logit " << i << " of " << a.size() << " is " << a[i] << ", not " << b[i];
}

// A golden model on the CPU executor, and what its sequences are made of.
class TestModel {
 public:
  struct Options {
    compute::KvDtype k_dtype = compute::KvDtype::kF16;
    compute::KvDtype v_dtype = compute::KvDtype::kF16;
    size_t num_threads = 1;
    std::string_view isa = "auto";
    uint32_t context = 320;
  };

  explicit TestModel(const model::GoldenModelSpec& spec) : TestModel(spec, Options()) {}
  TestModel(const model::GoldenModelSpec& spec, const Options& options)
      : spec_(spec), file_(model::MakeGoldenModel(spec)), opened_(Open(options)) {}

  Executor& executor() { return opened_.executor(); }
  OpenedModel& opened() { return opened_; }
  uint32_t vocab_size() const { return spec_.vocab_size; }

  std::unique_ptr<kv::SequenceCache> MakeCache(const kv::Strategy& strategy) {
    return strategy.make(opened_.MakeCacheOptions());
  }
  std::unique_ptr<kv::SequenceCache> MakeCache() { return MakeCache(kv::Strategies().front()); }

  // Appends `tokens` in steps of `chunk`; logits of all their positions.
  Logits Append(kv::SequenceCache& cache, std::span<const TokenId> tokens, size_t chunk) {
    Logits logits;
    for (size_t done = 0; done < tokens.size(); done += chunk) {
      const auto step = tokens.subspan(done, std::min(chunk, tokens.size() - done));
      const auto first = static_cast<uint32_t>(cache.length());
      EXPECT_TRUE(cache.Extend(step.size()).ok());
      const PagedView view = cache.View();
      StepPlan plan;
      plan.slices.push_back({.tokens = step,
                             .first_position = first,
                             .views = {&view, 1},
                             .num_logits = static_cast<uint32_t>(step.size())});
      for (const Logits& rows : Execute(plan))
        logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return logits;
  }

  // The logits of each slice. The plan must succeed.
  std::vector<Logits> Execute(const StepPlan& plan) {
    const auto outputs = executor().Execute(plan);
    EXPECT_TRUE(outputs.ok()) << outputs.error().message;
    std::vector<Logits> result;
    for (const SliceOutput& output : *outputs) {
      EXPECT_TRUE(output.status.ok()) << output.status.error().message;
      Logits& logits = result.emplace_back();
      for (const auto& row : output.logits) logits.insert(logits.end(), row.begin(), row.end());
    }
    return result;
  }

  // What everything is compared with: one pass over a fresh sequence.
  Logits Reference(std::span<const TokenId> tokens) {
    const auto cache = MakeCache();
    return Append(*cache, tokens, tokens.size());
  }

  // Of positions [first, last) among logits that begin at position 0.
  std::span<const float> Positions(std::span<const float> logits, size_t first, size_t last) const {
    return logits.subspan(first * vocab_size(), (last - first) * vocab_size());
  }

 private:
  static constexpr size_t kMaxSequences = 16;  // of the whole context

  OpenedModel Open(const Options& options) const {
    OpenOptions open;
    open.context = options.context;
    open.pool_tokens = kMaxSequences * options.context;
    open.num_threads = options.num_threads;
    open.k_dtype = options.k_dtype;
    open.v_dtype = options.v_dtype;
    open.isa = options.isa;
    open.max_step_tokens = options.context;
    return std::move(OpenedModel::Open(model::Gguf::Parse(file_, "golden").value(), open)).value();
  }

  const model::GoldenModelSpec spec_;
  const std::vector<std::byte> file_;
  OpenedModel opened_;
};

}  // namespace kvern::engine
