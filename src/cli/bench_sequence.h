// Benchmarks' way to the executor: steps over given tokens, without sampling.
//
// As in generation, K/V are stored through a strategy's cache, a step has at most as many tokens as
// the executor takes, and logits are computed of the last token alone. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/exec/open.h"
#include "engine/executor.h"
#include "kv/strategy.h"
#include "kvern/ids.h"

namespace kvern::cli {

// Of what is computed: the same in every run.
inline constexpr uint64_t kBenchSeed = 1;

// The same ones for the same arguments, each below `vocab_size`.
std::vector<TokenId> RandomTokens(uint64_t seed, size_t count, uint32_t vocab_size);

// The next tokens of one sequence.
struct StepPiece {
  kv::SequenceCache* cache;
  std::span<const TokenId> tokens;
  bool wants_logits;  // of the last token
};

// Extends each cache by its tokens and computes them in one step. `shared` may name a group of
// pieces. Errors: those of the caches, the executor and each piece.
Status RunStep(engine::Executor& executor, std::span<const StepPiece> pieces,
               const std::optional<engine::SharedPrefix>& shared = {});

// One sequence. Where the strategy keeps nothing, each Append() computes the whole history.
class BenchSequence {
 public:
  // Both must outlive the sequence.
  BenchSequence(engine::OpenedModel* model, const kv::Strategy* strategy);

  // Computes `tokens` behind those before. At least one.
  Status Append(std::span<const TokenId> tokens);

  // Forgets tokens from `length` on.
  void Truncate(size_t length);

  kv::CacheUsage usage() const { return cache_->usage(); }

 private:
  engine::Executor& executor_;
  const kv::Strategy& strategy_;
  std::unique_ptr<kv::SequenceCache> cache_;
  std::vector<TokenId> tokens_;
};

}  // namespace kvern::cli
