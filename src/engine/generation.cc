#include "engine/generation.h"

#include <algorithm>
#include <utility>

namespace kvern::engine {

Generation::Generation(Executor* executor, GenerationOptions options)
    : executor_(executor),
      options_(std::move(options)),
      cache_(options_.strategy->make(options_.cache)) {}

Status Generation::Start(GenerationRequest request) {
  const size_t num_prompt = request.prompt.size();
  if (num_prompt == 0) {
    return Errorf(ErrorCode::kInvalidArgument, "the prompt has no tokens: give it some text");
  }
  if (num_prompt > context()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "the prompt has {} tokens, but the context is {}: shorten it or raise -c",
                  num_prompt, context());
  }
  if (request.max_new_tokens && num_prompt + *request.max_new_tokens > context()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{} prompt tokens and -n {} exceed the context of {}: lower -n or raise -c",
                  num_prompt, *request.max_new_tokens, context());
  }
  tokens_ = std::move(request.prompt);
  num_prompt_tokens_ = num_prompt;
  max_new_tokens_ = request.max_new_tokens.value_or(context());
  sampling_ = std::move(request.sampling);
  completion_index_ = request.completion_index;
  finish_.reset();
  if (max_new_tokens_ == 0) finish_ = FinishReason::kLength;

  // The last prompt token is computed in any case: its logits are wanted.
  const size_t max_kept = options_.strategy->recomputes_history ? 0 : num_prompt - 1;
  KVERN_ASSIGN_OR_RETURN(num_kept_tokens_, cache_->Begin(tokens_, max_kept));
  return {};
}

Result<std::optional<SampledToken>> Generation::Step() {
  if (finish_) return std::optional<SampledToken>{};
  // Schedule: the next tokens without K/V.
  const size_t first = cache_->length();
  const size_t count = std::min(tokens_.size() - first, options_.prefill_chunk);
  const bool is_last = first + count == tokens_.size();
  const std::span<const TokenId> tokens = std::span(tokens_).subspan(first, count);
  KVERN_RETURN_IF_ERROR(cache_->Extend(tokens));

  // Execute.
  const PagedView view = cache_->View();
  const SampleRequest sample = {&sampling_, tokens_, num_prompt_tokens_, completion_index_};
  StepPlan plan;
  plan.slices.push_back({.tokens = tokens,
                         .first_position = static_cast<uint32_t>(first),
                         .views = {&view, 1},
                         .num_logits = is_last ? 1u : 0u,
                         .sample = is_last ? &sample : nullptr});
  auto outputs = executor_->Execute(plan);
  const Status status = outputs.ok() ? (*outputs)[0].status : Status(outputs.error());
  if (!status.ok()) {
    cache_->Truncate(first);
    return status.error();
  }

  // Commit.
  cache_->Commit();
  Trace(first, count);
  if (!is_last) return std::optional<SampledToken>{};
  const SliceOutput& output = (*outputs)[0];
  last_logits_ = output.logits[0];
  Commit(output.tokens[0]);
  return std::optional(output.tokens[0]);
}

void Generation::Commit(const SampledToken& token) {
  if (std::ranges::find(options_.end_tokens, token.id) != options_.end_tokens.end()) {
    finish_ = FinishReason::kStop;
    return;
  }
  tokens_.push_back(token.id);
  const size_t num_new = tokens_.size() - num_prompt_tokens_;
  // The last token of a full context is given, but has no room to be computed on.
  if (num_new >= max_new_tokens_ || tokens_.size() > context()) finish_ = FinishReason::kLength;
  if (options_.strategy->recomputes_history) cache_->Truncate(0);
}

void Generation::Trace(size_t first_position, size_t num_tokens) const {
  if (!options_.on_step) return;
  const bool is_decode = num_tokens == 1 && first_position >= num_prompt_tokens_;
  options_.on_step({.kind = is_decode ? StepTrace::Kind::kDecode : StepTrace::Kind::kPrefill,
                    .first_position = first_position,
                    .num_tokens = num_tokens,
                    .num_rows_read = first_position,
                    .bytes_written = num_tokens * options_.token_bytes,
                    .bytes_read = first_position * options_.token_bytes,
                    .bytes_allocated = cache_->usage().bytes_allocated});
}

}  // namespace kvern::engine
