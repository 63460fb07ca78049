// Scoring: the logits of every position of a given text, as perplexity and comparisons need them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "engine/executor.h"
#include "kv/sequence_cache.h"
#include "kvern/ids.h"

namespace kvern::engine {

struct ScoringOptions {
  size_t chunk = 512;       // tokens a step; at most the executor's max_step_tokens
  size_t first_wanted = 0;  // position from which logits are wanted
};

// The logits that follow tokens[position], valid during the call.
using LogitsSink = std::function<void(size_t position, std::span<const float> logits)>;

// Appends `tokens` to `cache` (empty before) and passes the logits of each wanted position, in
// order. Errors: those of the cache and the executor; the cache is then as far as it came.
Status ScoreTokens(Executor* executor, kv::SequenceCache* cache, std::span<const TokenId> tokens,
                   const ScoringOptions& options, const LogitsSink& sink);

}  // namespace kvern::engine
