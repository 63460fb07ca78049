#include "cli/bench_sequence.h"

#include <algorithm>

#include "base/rng.h"

namespace kvern::cli {

std::vector<TokenId> RandomTokens(uint64_t seed, size_t count, uint32_t vocab_size) {
  SplitMix64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = TokenId(random.Below(vocab_size));
  return tokens;
}

Status RunStep(engine::Executor& executor, std::span<const StepPiece> pieces,
               const std::optional<engine::SharedPrefix>& shared) {
  std::vector<PagedView> views(pieces.size());
  engine::StepPlan plan;
  if (shared) plan.shared.push_back(*shared);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const StepPiece& piece = pieces[i];
    const auto first = static_cast<uint32_t>(piece.cache->length());
    KVERN_RETURN_IF_ERROR(piece.cache->Extend(piece.tokens.size()));
    views[i] = piece.cache->View();
    plan.slices.push_back({.tokens = piece.tokens,
                           .first_position = first,
                           .views = {&views[i], 1},
                           .num_logits = piece.wants_logits ? 1u : 0u});
  }
  KVERN_ASSIGN_OR_RETURN(const auto outputs, executor.Execute(plan));
  for (const engine::SliceOutput& output : outputs) KVERN_RETURN_IF_ERROR(output.status);
  return {};
}

BenchSequence::BenchSequence(engine::OpenedModel* model, const kv::Strategy* strategy)
    : executor_(model->executor()),
      strategy_(*strategy),
      cache_(strategy->make(model->MakeCacheOptions())) {}

Status BenchSequence::Append(std::span<const TokenId> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (strategy_.recomputes_history) cache_->Truncate(0);
  std::span<const TokenId> left = std::span(tokens_).subspan(cache_->length());
  while (!left.empty()) {
    const size_t count = std::min<size_t>(left.size(), executor_.info().max_step_tokens);
    const StepPiece piece = {
        .cache = cache_.get(), .tokens = left.first(count), .wants_logits = count == left.size()};
    KVERN_RETURN_IF_ERROR(RunStep(executor_, {&piece, 1}));
    left = left.subspan(count);
  }
  return {};
}

void BenchSequence::Truncate(size_t length) {
  tokens_.resize(length);
  cache_->Truncate(std::min(length, cache_->length()));
}

}  // namespace kvern::cli
