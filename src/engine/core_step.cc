// Core: a step, which is schedule, execute, commit.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "engine/core_impl.h"

namespace kvern::engine {

bool Core::Impl::Step() {
  now_us_ = parts_.clock->now_us();
  const int64_t begin_us = now_us_;
  EndOverdue();
  const std::span<const ScheduledSlice> slices = scheduler_.Schedule(now_us_);
  const bool has_work = !slices.empty();
  if (has_work) Run(slices, begin_us);
  for (const Failure& failure : scheduler_.failures()) {
    if (failure.sequence->phase != Phase::kFinished) Fail(*failure.sequence, failure.error);
  }
  BuryFinished();
  return has_work || scheduler_.goes_on() || !scheduler_.failures().empty();
}

void Core::Impl::Run(std::span<const ScheduledSlice> slices, int64_t begin_us) {
  BuildPlan(slices);

  const int64_t execute_us = parts_.clock->now_us();
  const auto outputs = Execute();
  now_us_ = parts_.clock->now_us();
  if (outputs.ok()) {
    scheduler_.Told(*outputs, now_us_ - execute_us);
    for (size_t i = 0; i < slices.size(); ++i) Commit(slices[i], (*outputs)[i]);
  } else {
    scheduler_.ToldFailure();
    RollBack(slices, outputs.error());
  }
  ++counts_.steps;
  counts_.schedule_us += execute_us - begin_us;
  counts_.execute_us += now_us_ - execute_us;
  counts_.commit_us += parts_.clock->now_us() - now_us_;
}

void Core::Impl::BuildPlan(std::span<const ScheduledSlice> slices) {
  const size_t num_groups = parts_.executor->info().groups.size();
  views_.clear();
  views_.reserve(slices.size() * num_groups);
  samples_.clear();
  samples_.reserve(slices.size());
  plan_.slices.clear();
  for (const ScheduledSlice& scheduled : slices) {
    const Sequence& sequence = *scheduled.sequence;
    for (size_t group = 0; group < num_groups; ++group) {
      views_.push_back(sequence.kv->View(static_cast<kv::GroupId>(group)));
    }
    Slice slice = {
        .tokens = std::span(sequence.tokens).subspan(scheduled.first, scheduled.num_tokens),
        .first_position = static_cast<uint32_t>(scheduled.first),
        .views = std::span(views_).last(num_groups),
        .query_only = scheduled.query_only,
        .is_chunk = scheduled.is_chunk,
        .first_layer = scheduled.is_chunk ? sequence.chunk_layers : 0};
    if (scheduled.samples) {
      samples_.push_back({.params = &sequence.request->request.sampling,
                          .history = sequence.tokens,
                          .num_prompt_tokens = sequence.num_prompt(),
                          .completion_index = sequence.completion});
      slice.num_logits = static_cast<uint32_t>(1 + scheduled.num_drafts);
      slice.sample = &samples_.back();
    }
    plan_.slices.push_back(slice);
  }
  const size_t num_whole = slices.size() - (slices.back().is_chunk ? 1 : 0);
  shared_groups_.Find(std::span(plan_.slices).first(num_whole), plan_.shared);
  plan_.pace = scheduler_.chunk_pace();
}

Result<std::span<const SliceOutput>> Core::Impl::Execute() {
  try {
    return parts_.executor->Execute(plan_);
  } catch (const std::bad_alloc&) {
    return Errorf(ErrorCode::kOutOfMemory,
                  "the machine has no memory for a step: use a smaller step_tokens or KV cache");
  } catch (const std::exception& exception) {
    return Errorf(ErrorCode::kIo, "the executor failed: {}", exception.what());
  }
}

// Nothing of the step was computed. Who was alone in it is to blame.
void Core::Impl::RollBack(std::span<const ScheduledSlice> slices, const Error& error) {
  for (const ScheduledSlice& slice : slices) {
    Sequence& sequence = *slice.sequence;
    if (sequence.phase != Phase::kRunning) continue;  // its request has failed here
    sequence.tokens.resize(sequence.tokens.size() - slice.num_drafts);
    const Status status = slice.query_only ? Status() : sequence.kv->Truncate(slice.first);
    if (!status.ok()) {
      Fail(sequence, status.error());
    } else if (slices.size() == 1) {
      Fail(sequence, error);
    }
  }
}

void Core::Impl::Commit(const ScheduledSlice& slice, const SliceOutput& output) {
  Sequence& sequence = *slice.sequence;
  LiveRequest& request = *sequence.request;
  if (sequence.phase != Phase::kRunning) return;  // its request has failed in this step
  sequence.tokens.resize(sequence.tokens.size() - slice.num_drafts);
  // First, for a damaged row may be the reason of a failure.
  if (slice.query_only && !CheckStored(slice, output)) return;
  if (!output.status.ok()) return Fail(sequence, output.status.error());
  request.tenant->served += slice.work;
  if (slice.goes_on) return;
  const bool is_prefill =
      slice.num_tokens > 1 + slice.num_drafts || slice.first < sequence.num_prompt();
  if (is_prefill) {
    counts_.prefilled_tokens += slice.num_tokens;
    request.report.prefilled_tokens += slice.num_tokens;
    request.Log(LifecycleEvent::Kind::kPrefill, now_us_, sequence.completion,
                slice.first + slice.num_tokens);
  }
  if (!slice.samples) {
    sequence.kv->Commit(slice.first + slice.num_tokens);
    return;
  }
  if (!request.has_forked) {
    sequence.kv->Commit(sequence.num_prompt());
    EndPrefill(sequence);
  }
  CommitTokens(slice, output);
}

// A full hit's last token was computed again: an end-to-end check of what the cache holds (K5).
bool Core::Impl::CheckStored(const ScheduledSlice& slice, const SliceOutput& output) {
  Sequence& sequence = *slice.sequence;
  ++counts_.self_checks;
  if (!output.stored_differs) {
    sequence.request->Log(LifecycleEvent::Kind::kSelfCheck, now_us_, sequence.completion,
                          slice.first);
    return true;
  }
  // Memory is damaged, or was written by somebody else: what is cached is not to be trusted.
  ++counts_.self_check_failures;
  sequence.distrusts_cache = true;
  scheduler_.Preempt(sequence, now_us_);
  parts_.cache->DropCached(sequence.request->ns);
  return false;
}

// The prompt is computed: later completions begin with its blocks, and what is to be kept is kept.
void Core::Impl::EndPrefill(Sequence& sequence) {
  LiveRequest& request = *sequence.request;
  request.has_forked = true;
  const CacheUse& cache = request.request.cache;
  for (const CacheSpan& span : cache.spans) {
    if (!cache.use || !cache.publish) break;
    const size_t size = std::min(span.num_tokens, sequence.num_prompt());
    request.report.spans.push_back(parts_.cache->KeepSpan(
        request.ns, std::span(request.request.tokens).first(size), span.ttl_us));
  }
  for (const auto& other : request.sequences) {
    if (other->phase != Phase::kHeld) continue;
    if (sequence.kv->length() == sequence.num_prompt() &&
        scheduler_.AddForked(other.get(), sequence.kv->Fork())) {
      request.Log(LifecycleEvent::Kind::kForked, now_us_, other->completion, other->completion);
    } else {
      scheduler_.Add(other.get());
    }
  }
}

void Core::Impl::CommitTokens(const ScheduledSlice& slice, const SliceOutput& output) {
  Sequence& sequence = *slice.sequence;
  LiveRequest& request = *sequence.request;
  const size_t num_accepted = output.tokens.size() - 1;
  if (slice.num_drafts > 0) {
    sequence.draft_length.Told(slice.num_drafts, num_accepted);
    request.report.drafted_tokens += slice.num_drafts;
    counts_.drafted_tokens += slice.num_drafts;
    request.report.accepted_tokens += num_accepted;
    counts_.accepted_tokens += num_accepted;
  }
  BeginChunk(sequence);
  const size_t num_before = sequence.tokens.size();
  std::optional<FinishReason> finish;
  for (size_t i = 0; i < output.tokens.size() && !finish; ++i) {
    finish = Accept(sequence, output.tokens[i]);
  }
  // Rows of accepted drafts are good as far as they became part of the reply.
  const size_t num_said = sequence.tokens.size() - num_before;
  const size_t num_rows = num_before + std::min(num_accepted, num_said);
  if (num_rows < sequence.kv->length()) {
    const Status status = sequence.kv->Truncate(num_rows);
    CHECK(status.ok());  // within max_rollback
  }
  sequence.kv->Commit(num_rows);
  if (finish) {
    Finish(sequence, *finish);
  } else {
    Deliver(request);
  }
}

// One more token, and whether the completion ends with it (rule N10).
std::optional<FinishReason> Core::Impl::Accept(Sequence& sequence, const SampledToken& token) {
  LiveRequest& request = *sequence.request;
  const auto has = [&](const std::vector<TokenId>& ids) {
    return std::ranges::find(ids, token.id) != ids.end();
  };
  if (has(request.request.stop_tokens) || (!request.request.ignore_end && has(parts_.end_tokens))) {
    return FinishReason::kStop;
  }
  if (sequence.num_new() == 0) {
    sequence.first_token_us = now_us_;
    if (!request.report.ttft_us) request.report.ttft_us = now_us_ - request.arrival_us;
    request.Log(LifecycleEvent::Kind::kFirstToken, now_us_, sequence.completion,
                sequence.completion);
  }
  sequence.last_token_us = now_us_;
  sequence.tokens.push_back(token.id);
  chunk_.tokens.push_back(token);
  ++counts_.decoded_tokens;
  if (sequence.text.Push(token.id, chunk_.text)) return FinishReason::kStop;
  if (sequence.num_new() >= request.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace kvern::engine
