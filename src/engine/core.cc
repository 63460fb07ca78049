#include "engine/core.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "engine/request_check.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_groups.h"

namespace kvern::engine {
namespace {

// How soon a step looks again whether a load from a tier has arrived.
constexpr int64_t kPollUs = 500;

// Tenants that are remembered for what they were served while they have no request.
constexpr size_t kMaxTenants = 4096;

Status CheckOptions(const SchedulerOptions& options) {
  const auto fail = [](std::string_view field, std::string_view rule) {
    return Errorf(ErrorCode::kInvalidArgument, "SchedulerOptions::{}: {}", field, rule);
  };
  if (options.step_tokens == 0) return fail("step_tokens", "must be at least 1");
  if (options.target_token_us < 0) return fail("target_token_us", "must be 0 (off) or more");
  if (options.max_running == 0) return fail("max_running", "must be at least 1");
  if (options.max_waiting == 0) return fail("max_waiting", "must be at least 1");
  if (options.ageing_us <= 0) return fail("ageing_us", "must be at least 1");
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    return fail("watermark", "must be at least 0 and less than 1");
  }
  return {};
}

}  // namespace

class Core::Impl {
 public:
  Impl(CoreParts parts, const SchedulingPolicy* policy, const SchedulerOptions& scheduler,
       const SpeculationOptions& speculation)
      : parts_(std::move(parts)),
        options_(scheduler),
        speculation_(speculation),
        scheduler_(parts_, policy, scheduler),
        context_(std::min<size_t>(parts_.executor->info().max_positions,
                                  scheduler_.capacity_tokens())) {}

  Status Check(const Request& request) const;
  Result<RequestId> Submit(Request request, ReplySink* sink, std::optional<int64_t> arrival_us);
  void End(RequestId id, FinishReason reason);
  bool Step();
  bool idle() const { return requests_.empty(); }
  std::optional<int64_t> next_wake_us() const;
  std::optional<Report> report(RequestId id) const;
  EngineStats stats() const;
  Result<kv::NamespaceId> NamespaceOf(const Request& request);
  void CheckInvariants() const;
  void CancelAll();

 private:
  Status CheckFits(const Request& request) const;
  Status MakeQueueRoom(const Request& request);
  Tenant* TenantOf(const std::string& name);

  void EndAll(LiveRequest& request, FinishReason reason);
  void EndOverdue();
  void Fail(Sequence& sequence, Error error);
  void BeginChunk(const Sequence& sequence);
  void Deliver(LiveRequest& request);
  void Finish(Sequence& sequence, FinishReason reason);
  void BuryFinished();
  void CompleteReport(const LiveRequest& request, Report& report) const;

  void Run(std::span<const ScheduledSlice> slices, int64_t begin_us);
  void BuildPlan(std::span<const ScheduledSlice> slices);
  Result<std::span<const SliceOutput>> Execute();
  void RollBack(std::span<const ScheduledSlice> slices, const Error& error);
  void Commit(const ScheduledSlice& slice, const SliceOutput& output);
  bool CheckStored(const ScheduledSlice& slice, const SliceOutput& output);
  void EndPrefill(Sequence& sequence);
  void CommitTokens(const ScheduledSlice& slice, const SliceOutput& output);
  std::optional<FinishReason> Accept(Sequence& sequence, const SampledToken& token);

  const CoreParts parts_;
  const SchedulerOptions options_;
  const SpeculationOptions speculation_;
  Scheduler scheduler_;
  const size_t context_;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<LiveRequest>> requests_;
  std::unordered_map<std::string, kv::NamespaceId> namespaces_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  std::vector<LiveRequest*> finished_;  // to be buried when nobody looks at them any more

  // Of the step in progress; their memory is used again.
  int64_t now_us_ = 0;
  std::vector<PagedView> views_;
  std::vector<SampleRequest> samples_;
  StepPlan plan_;
  SharedGroups shared_groups_;
  Chunk chunk_;

  EngineStats counts_;  // those that the scheduler and the cache do not keep
};

// ---- Requests come

Result<std::unique_ptr<Core>> Core::Make(CoreParts parts, const SchedulerOptions& scheduler,
                                         const SpeculationOptions& speculation) {
  KVERN_RETURN_IF_ERROR(CheckOptions(scheduler));
  KVERN_ASSIGN_OR_RETURN(const SchedulingPolicy* policy, FindSchedulingPolicy(scheduler.policy));
  const ExecutorInfo& info = parts.executor->info();
  if (scheduler.step_tokens > info.max_step_tokens) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "SchedulerOptions::step_tokens: {} are more than the executor's {}",
                  scheduler.step_tokens, info.max_step_tokens);
  }
  return std::unique_ptr<Core>(
      new Core(std::make_unique<Impl>(std::move(parts), policy, scheduler, speculation)));
}

Core::Core(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Core::~Core() { impl_->CancelAll(); }

Status Core::Check(const Request& request) const { return impl_->Check(request); }
Result<RequestId> Core::Submit(Request request, ReplySink* sink,
                               std::optional<int64_t> arrival_us) {
  return impl_->Submit(std::move(request), sink, arrival_us);
}
void Core::Cancel(RequestId id) { impl_->End(id, FinishReason::kCancelled); }
bool Core::Step() { return impl_->Step(); }
bool Core::idle() const { return impl_->idle(); }
std::optional<int64_t> Core::next_wake_us() const { return impl_->next_wake_us(); }
std::optional<Report> Core::report(RequestId id) const { return impl_->report(id); }
EngineStats Core::stats() const { return impl_->stats(); }
Result<kv::NamespaceId> Core::NamespaceOf(const Request& request) {
  return impl_->NamespaceOf(request);
}
void Core::CheckInvariants() const { impl_->CheckInvariants(); }

Status Core::Impl::CheckFits(const Request& request) const {
  const size_t num_prompt = request.tokens.size();
  const uint32_t vocab_size = parts_.executor->info().vocab_size;
  for (const TokenId token : request.tokens) {
    if (static_cast<uint32_t>(token) < vocab_size) continue;
    return Errorf(ErrorCode::kInvalidArgument, "tokens: {} is outside the vocabulary of {}",
                  static_cast<uint32_t>(token), vocab_size);
  }
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "stop: there is no tokenizer to find texts with");
  }
  const size_t num_new = request.max_tokens.value_or(1);
  // The last token has no successor, so needs no room.
  const size_t needed = num_prompt + num_new - std::min<size_t>(num_new, 1);
  if (needed <= context_) return {};
  const size_t positions = parts_.executor->info().max_positions;
  if (needed > positions) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{} prompt tokens and {} new ones exceed the context of {}: shorten the prompt, "
                  "lower max_tokens or raise the context",
                  num_prompt, num_new, positions);
  }
  return Errorf(ErrorCode::kOutOfMemory,
                "{} prompt tokens and {} new ones can never fit: all KV memory together has room "
                "for {}: shorten the prompt, lower max_tokens or give the KV cache more memory",
                num_prompt, num_new, context_);
}

// If too many wait, the last in line goes, if it is less important than the newcomer.
Status Core::Impl::MakeQueueRoom(const Request& request) {
  size_t num_waiting = 0;
  for (const auto& [id, live] : requests_) {
    num_waiting += !live->sequences[0]->was_admitted ? 1 : 0;
  }
  if (num_waiting < options_.max_waiting) return {};
  LiveRequest* last = nullptr;
  for (const auto& [id, live] : requests_) {
    if (live->sequences[0]->was_admitted || live->request.priority >= request.priority) continue;
    const auto key = [](const LiveRequest& r) {
      return std::pair(-r.request.priority, static_cast<uint64_t>(r.id));
    };
    if (last == nullptr || key(*live) > key(*last)) last = live.get();
  }
  Error error = {
      ErrorCode::kOverloaded,
      fmt::format("{} requests wait already, the most allowed: try again later", num_waiting)};
  ++counts_.refused;
  if (last == nullptr) return error;
  Fail(*last->sequences[0], std::move(error));
  BuryFinished();
  return {};
}

Tenant* Core::Impl::TenantOf(const std::string& name) {
  if (tenants_.size() >= kMaxTenants) {
    std::erase_if(tenants_, [](const auto& row) { return row.second->num_live == 0; });
  }
  std::unique_ptr<Tenant>& tenant = tenants_[name];
  if (tenant == nullptr) tenant = std::make_unique<Tenant>();
  if (tenant->num_live == 0) {
    // Having been away gives no credit.
    double least = -1;
    for (const auto& [key, other] : tenants_) {
      if (other->num_live == 0) continue;
      if (least < 0 || other->served < least) least = other->served;
    }
    tenant->served = std::max(tenant->served, least);
  }
  return tenant.get();
}

Result<kv::NamespaceId> Core::Impl::NamespaceOf(const Request& request) {
  const std::string& group = request.cache_group.value_or(request.tenant);
  const auto known = namespaces_.find(group);
  if (known != namespaces_.end()) return known->second;
  kv::NamespaceSpec spec = parts_.ns;
  spec.tenant = group;
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, parts_.cache->OpenNamespace(spec));
  namespaces_.emplace(group, ns);
  return ns;
}

Status Core::Impl::Check(const Request& request) const {
  KVERN_RETURN_IF_ERROR(CheckRequest(request));
  return CheckFits(request);
}

Result<RequestId> Core::Impl::Submit(Request request, ReplySink* sink,
                                     std::optional<int64_t> arrival_us) {
  now_us_ = parts_.clock->now_us();
  const Status status = Check(request);
  if (!status.ok()) {
    ++counts_.refused;
    return status.error();
  }
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, NamespaceOf(request));
  KVERN_RETURN_IF_ERROR(MakeQueueRoom(request));

  auto live = std::make_unique<LiveRequest>();
  live->id = static_cast<RequestId>(++last_id_);
  live->request = std::move(request);
  live->request.sampling.seed = live->request.seed.value_or(live->request.sampling.seed);
  live->sink = sink;
  live->ns = ns;
  live->tenant = TenantOf(live->request.tenant);
  ++live->tenant->num_live;
  live->arrival_us = std::min(arrival_us.value_or(now_us_), now_us_);
  const size_t num_prompt = live->request.tokens.size();
  live->max_tokens = live->request.max_tokens.value_or(context_ + 1 - num_prompt);
  live->report.id = last_id_;
  live->report.seed = live->request.sampling.seed;
  live->report.prompt_tokens = num_prompt;
  live->Log(LifecycleEvent::Kind::kQueued, now_us_, 0, num_prompt);
  for (uint32_t i = 0; i < live->request.n; ++i) {
    live->sequences.push_back(
        std::make_unique<Sequence>(live.get(), i, speculation_, parts_.tokenizer));
  }
  if (live->request.deadline_us) {
    live->deadline_us = live->arrival_us + *live->request.deadline_us;
    deadlines_.emplace(*live->deadline_us, last_id_);
  }
  ++counts_.requests;
  LiveRequest& added = *live;
  requests_.emplace(last_id_, std::move(live));
  const RequestId id = added.id;
  if (added.max_tokens == 0) {
    End(id, FinishReason::kLength);
  } else {
    scheduler_.Add(added.sequences[0].get());
  }
  return id;
}

// ---- … and go

void Core::Impl::End(RequestId id, FinishReason reason) {
  const auto found = requests_.find(static_cast<uint64_t>(id));
  if (found == requests_.end()) return;
  now_us_ = parts_.clock->now_us();
  EndAll(*found->second, reason);
  BuryFinished();
}

void Core::Impl::CancelAll() {
  while (!requests_.empty()) End(requests_.begin()->second->id, FinishReason::kCancelled);
}

// Every sequence of it that has not finished.
void Core::Impl::EndAll(LiveRequest& request, FinishReason reason) {
  for (const auto& sequence : request.sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    BeginChunk(*sequence);
    Finish(*sequence, reason);
  }
}

void Core::Impl::Fail(Sequence& sequence, Error error) {
  LiveRequest& request = *sequence.request;
  if (!request.report.error) request.report.error = std::move(error);
  if (!request.has_forked) return EndAll(request, FinishReason::kFailed);
  BeginChunk(sequence);
  Finish(sequence, FinishReason::kFailed);
}

void Core::Impl::BeginChunk(const Sequence& sequence) {
  chunk_.completion = sequence.completion;
  chunk_.tokens.clear();
  chunk_.text.clear();
  chunk_.finish.reset();
}

// Tells the reader what BeginChunk() began.
void Core::Impl::Deliver(LiveRequest& request) {
  if (request.is_broken) return;
  std::string what = "an exception";
  try {
    request.sink->Take(chunk_);
    return;
  } catch (const std::exception& exception) {
    what = exception.what();
  } catch (...) {
  }
  request.is_broken = true;
  request.report.error =
      Errorf(ErrorCode::kInvalidArgument, "on_chunk: threw {}: the request was given up", what);
  EndAll(request, FinishReason::kFailed);
}

// Its last chunk, which BeginChunk() began, and an end to everything it holds.
void Core::Impl::Finish(Sequence& sequence, FinishReason reason) {
  LiveRequest& request = *sequence.request;
  scheduler_.Remove(&sequence);
  sequence.text.Flush(chunk_.text);
  chunk_.finish = reason;
  request.has_failed |= reason == FinishReason::kFailed;
  request.was_cancelled |= reason == FinishReason::kCancelled;
  request.Log(reason == FinishReason::kFailed ? LifecycleEvent::Kind::kFailed
                                              : LifecycleEvent::Kind::kFinished,
              now_us_, sequence.completion, sequence.num_new());
  if (++request.num_finished == request.sequences.size()) finished_.push_back(&request);
  Deliver(request);
}

void Core::Impl::BuryFinished() {
  for (LiveRequest* const request : finished_) {
    ++(request->has_failed      ? counts_.failed
       : request->was_cancelled ? counts_.cancelled
                                : counts_.finished);
    CompleteReport(*request, request->report);
    request->report.total_us = now_us_ - request->arrival_us;
    if (request->deadline_us) {
      deadlines_.erase({*request->deadline_us, static_cast<uint64_t>(request->id)});
    }
    --request->tenant->num_live;
    const auto node = requests_.extract(static_cast<uint64_t>(request->id));
    request->sink->Finish(std::move(request->report));
  }
  finished_.clear();
}

// What is counted by sequence.
void Core::Impl::CompleteReport(const LiveRequest& request, Report& report) const {
  int64_t decoding_us = 0;
  size_t num_intervals = 0;
  report.completion_tokens = 0;
  for (const auto& sequence : request.sequences) {
    const size_t num_new = sequence->num_new();
    report.completion_tokens += num_new;
    if (num_new < 2) continue;
    decoding_us += sequence->last_token_us - sequence->first_token_us;
    num_intervals += num_new - 1;
  }
  if (num_intervals > 0) {
    report.tpot_us = static_cast<double>(decoding_us) / static_cast<double>(num_intervals);
  }
}

void Core::Impl::EndOverdue() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us_) {
    const auto found = requests_.find(deadlines_.begin()->second);
    EndAll(*found->second, FinishReason::kDeadline);
    deadlines_.erase(deadlines_.begin());
  }
  BuryFinished();
}

// ---- A step: schedule, execute, commit

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
  scheduler_.Told(outputs.ok(), now_us_ - execute_us);

  if (outputs.ok()) {
    for (size_t i = 0; i < slices.size(); ++i) Commit(slices[i], (*outputs)[i]);
  } else {
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
        .query_only = scheduled.query_only};
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
  shared_groups_.Find(plan_.slices, plan_.shared);
}

Result<std::span<const SliceOutput>> Core::Impl::Execute() {
  try {
    return parts_.executor->Execute(plan_);
  } catch (const std::bad_alloc&) {
    return Errorf(ErrorCode::kOutOfMemory, "the machine has no memory for a step");
  } catch (const std::exception& exception) {
    return Errorf(ErrorCode::kIo, "the executor failed: {}", exception.what());
  }
}

// Nothing of the step was computed. Who was alone in it is to blame.
void Core::Impl::RollBack(std::span<const ScheduledSlice> slices, const Error& error) {
  for (const ScheduledSlice& slice : slices) {
    Sequence& sequence = *slice.sequence;
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
  request.tenant->served += WorkOf(slice.first, slice.num_tokens);
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
  if (cache.span_tokens > 0 && cache.use && cache.publish) {
    const size_t size = std::min(cache.span_tokens, sequence.num_prompt());
    request.report.span = parts_.cache->KeepSpan(
        request.ns, std::span(request.request.tokens).first(size), cache.span_ttl_us);
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

// ---- What is

std::optional<int64_t> Core::Impl::next_wake_us() const {
  std::optional<int64_t> wake;
  if (!deadlines_.empty()) wake = deadlines_.begin()->first;
  if (!scheduler_.loading().empty()) {
    const int64_t poll = parts_.clock->now_us() + kPollUs;
    wake = std::min(wake.value_or(poll), poll);
  }
  return wake;
}

std::optional<Report> Core::Impl::report(RequestId id) const {
  const auto found = requests_.find(static_cast<uint64_t>(id));
  if (found == requests_.end()) return std::nullopt;
  Report report = found->second->report;
  CompleteReport(*found->second, report);
  return report;
}

EngineStats Core::Impl::stats() const {
  EngineStats stats = counts_;
  const SchedulerCounts& counts = scheduler_.counts();
  stats.running = scheduler_.running().size();
  stats.waiting = scheduler_.queue().sequences().size();
  stats.waiting_prefix = scheduler_.num_waiting_prefix();
  stats.loading = scheduler_.loading().size();
  for (const Sequence* sequence : scheduler_.running()) stats.paused += sequence->is_paused ? 1 : 0;
  stats.peak_running = counts.peak_running;
  stats.steps_kv_bound = counts.steps_kv_bound;
  stats.steps_queue_bound = counts.steps_queue_bound;
  stats.drafted_tokens = counts.drafted_tokens;
  stats.preemptions = counts.preemptions;
  stats.kv = parts_.cache->stats();
  return stats;
}

void Core::Impl::CheckInvariants() const {
  size_t num_in_phase[6] = {};
  for (const auto& [id, request] : requests_) {
    CHECK(static_cast<uint64_t>(request->id) == id);
    size_t num_finished = 0;
    for (const auto& sequence : request->sequences) {
      ++num_in_phase[static_cast<size_t>(sequence->phase)];
      num_finished += sequence->phase == Phase::kFinished ? 1 : 0;
      CHECK(sequence->kv.has_value() == (sequence->phase == Phase::kRunning));
      CHECK(sequence->phase != Phase::kHeld || !request->has_forked);
      CHECK(sequence->phase != Phase::kWaitingPrefix || sequence->waiter);
      CHECK(sequence->phase != Phase::kLoading || sequence->lease);
      if (!sequence->kv) continue;
      CHECK(sequence->kv->length() == sequence->kv->committed());
      CHECK(sequence->kv->length() <= sequence->tokens.size());
      CHECK(sequence->tokens.size() < sequence->num_prompt() + request->max_tokens);
    }
    CHECK(num_finished == request->num_finished && num_finished < request->sequences.size());
  }
  const auto num_in = [&](Phase phase) { return num_in_phase[static_cast<size_t>(phase)]; };
  CHECK(num_in(Phase::kWaiting) == scheduler_.queue().sequences().size());
  CHECK(num_in(Phase::kWaitingPrefix) == scheduler_.num_waiting_prefix());
  CHECK(num_in(Phase::kLoading) == scheduler_.loading().size());
  CHECK(num_in(Phase::kRunning) == scheduler_.running().size());
}

}  // namespace kvern::engine
