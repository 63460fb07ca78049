// Generation: one sequence from its prompt to its end, on an executor and a cache strategy.
//
// Start() takes a prompt (and may follow an earlier reply: the longest prefix of its tokens that
// the cache has is kept, the rest is computed). Then Step() runs prefill in chunks until the first
// token, and one decode step a token after that. The tokens depend on prompt and sampling
// parameters alone: not on the strategy, the chunk size or what was kept.
//
// Not thread-safe. The executor, tokens' vocabulary and KV cache must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/executor.h"
#include "kv/sequence_cache.h"
#include "kv/strategy.h"
#include "kvern/engine.h"
#include "kvern/ids.h"
#include "kvern/sampling.h"

namespace kvern::engine {

// What the cache did in one step, for those who trace or chart it.
struct StepTrace {
  enum class Kind { kPrefill, kDecode };
  Kind kind;
  size_t first_position;
  size_t num_tokens;     // computed: rows written, per layer
  size_t num_rows_read;  // rows of the history that attention read, per layer
  size_t bytes_written;
  size_t bytes_read;
  size_t bytes_allocated;  // held by the cache after the step
};

struct GenerationOptions {
  const kv::Strategy* strategy = nullptr;
  kv::CacheOptions cache;      // max_tokens is the context
  size_t token_bytes = 0;      // of K and V in all layers
  size_t prefill_chunk = 512;  // tokens a step; at most the executor's max_step_tokens
  std::vector<TokenId> end_tokens;
  std::function<void(const StepTrace&)> on_step;  // may be empty
};

struct GenerationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::optional<size_t> max_new_tokens;  // none: up to the context
  uint32_t completion_index = 0;         // another completion of the same prompt: drawn anew
};

class Generation {
 public:
  Generation(Executor* executor, GenerationOptions options);

  // Begins a reply. Errors: kInvalidArgument if the prompt is empty or does not fit the context,
  // with the numbers; kOutOfMemory.
  Status Start(GenerationRequest request);

  // One step. Returns the token it gave, if any: none while prefilling, and none once finished.
  Result<std::optional<SampledToken>> Step();

  // None while it goes on; else kStop or kLength.
  std::optional<FinishReason> finish_reason() const { return finish_; }
  // Prompt and completion so far; an end token is not part of it.
  std::span<const TokenId> tokens() const { return tokens_; }
  size_t num_prompt_tokens() const { return num_prompt_tokens_; }
  // Prompt tokens whose K/V the last Start() could keep.
  size_t num_kept_tokens() const { return num_kept_tokens_; }
  size_t num_computed() const { return cache_->length(); }
  // Logits of the last step that gave a token.
  std::span<const float> last_logits() const { return last_logits_; }
  kv::CacheUsage cache_usage() const { return cache_->usage(); }

 private:
  size_t context() const { return options_.cache.max_tokens; }
  void Commit(const SampledToken& token);
  void Trace(size_t first_position, size_t num_tokens) const;

  Executor* const executor_;
  const GenerationOptions options_;
  std::unique_ptr<kv::SequenceCache> cache_;
  std::vector<TokenId> tokens_;
  size_t num_prompt_tokens_ = 0;
  size_t num_kept_tokens_ = 0;
  size_t max_new_tokens_ = 0;
  SamplingParams sampling_;
  uint32_t completion_index_ = 0;
  std::optional<FinishReason> finish_;
  std::span<const float> last_logits_;
};

}  // namespace kvern::engine
