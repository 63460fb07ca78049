// Core: requests come and go.
#include "engine/core.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "engine/core_impl.h"
#include "engine/request_check.h"

namespace kvern::engine {
namespace {

// How soon a step looks again whether a load from a tier has arrived.
constexpr int64_t kPollUs = 500;

// Tenants that are remembered for what they were served while they have no request.
constexpr size_t kMaxTenants = 4096;

// Times any priority, it is a time.
constexpr int64_t kMaxAgeingUs = 1'000'000'000;

Status CheckOptions(const SchedulerOptions& options) {
  const auto fail = [](std::string_view field, std::string_view rule) {
    return Errorf(ErrorCode::kInvalidArgument, "SchedulerOptions::{}: {}", field, rule);
  };
  if (options.step_tokens == 0) return fail("step_tokens", "must be at least 1");
  if (options.target_token_us < 0) return fail("target_token_us", "must be 0 (off) or more");
  if (options.max_running == 0) return fail("max_running", "must be at least 1");
  if (options.max_waiting == 0) return fail("max_waiting", "must be at least 1");
  if (options.ageing_us <= 0 || options.ageing_us > kMaxAgeingUs) {
    return fail("ageing_us", "must be from 1 to 1,000,000,000");
  }
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    return fail("watermark", "must be at least 0 and less than 1");
  }
  return {};
}

}  // namespace

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

// Tokens that a sequence of it may have.
size_t Core::Impl::ContextOf(const Request& request) const {
  return std::min(context_, scheduler_.capacity_tokens(AccountOf(request)));
}

Status Core::Impl::CheckFits(const Request& request) const {
  const size_t num_prompt = request.tokens.size();
  const uint32_t vocab_size = parts_.executor->info().vocab_size;
  if (num_prompt == 0) {
    return Errorf(ErrorCode::kInvalidArgument, "tokens: the prompt has none: send at least one");
  }
  for (size_t i = 0; i < num_prompt; ++i) {
    const auto token = static_cast<uint32_t>(request.tokens[i]);
    if (token < vocab_size) continue;
    return Errorf(ErrorCode::kInvalidArgument, "tokens[{}]: {} is outside the vocabulary of {}", i,
                  token, vocab_size);
  }
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "stop: there is no tokenizer to find texts with");
  }
  const size_t num_new = request.max_tokens.value_or(1);
  // The last token has no successor, so needs no room.
  const size_t needed = num_prompt + num_new - std::min<size_t>(num_new, 1);
  const size_t context = ContextOf(request);
  if (needed <= context) return {};
  const size_t positions = parts_.executor->info().max_positions;
  if (needed > positions) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{} prompt tokens and {} new ones exceed the context of {}: shorten the prompt, "
                  "lower max_tokens or raise the context",
                  num_prompt, num_new, positions);
  }
  const bool is_too_much = needed > context_;
  const char* const whose =
      is_too_much ? "all KV memory together" : "what this tenant may have of the KV memory";
  const char* const more = is_too_much ? "give the KV cache more memory" : "raise its share";
  return Errorf(ErrorCode::kOutOfMemory,
                "{} prompt tokens and {} new ones can never fit: {} has room for {}: shorten the "
                "prompt, lower max_tokens or {}",
                num_prompt, num_new, whose, context, more);
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
  std::string group = SharingGroupOf(request);
  const auto known = namespaces_.find(group);
  if (known != namespaces_.end()) return known->second;
  kv::NamespaceSpec spec = parts_.ns;
  spec.tenant = group;
  spec.account = AccountOf(request);
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, parts_.cache->OpenNamespace(spec));
  namespaces_.emplace(std::move(group), ns);
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
  live->account = AccountOf(live->request);
  live->tenant = TenantOf(live->request.tenant);
  ++live->tenant->num_live;
  live->arrival_us = std::min(arrival_us.value_or(now_us_), now_us_);
  const size_t num_prompt = live->request.tokens.size();
  const size_t context = ContextOf(live->request);
  live->max_tokens = live->request.max_tokens.value_or(context + 1 - num_prompt);
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

namespace {

std::optional<WaitCause> WaitCauseOf(const Sequence& sequence) {
  switch (sequence.phase) {
    case Phase::kWaiting:
      if (sequence.blocked_bytes == 0) return WaitCause::kTurn;
      return sequence.lacks_share ? WaitCause::kShare : WaitCause::kMemory;
    case Phase::kWaitingPrefix:
      return WaitCause::kPrefix;
    case Phase::kLoading:
      return WaitCause::kTier;
    case Phase::kRunning:
      if (sequence.is_paused) return WaitCause::kReader;
      break;
    case Phase::kHeld:
    case Phase::kFinished:
      break;
  }
  return std::nullopt;
}

// None where any of its sequences is computed; else that of the first that waits.
std::optional<WaitCause> WaitCauseOf(const LiveRequest& request) {
  std::optional<WaitCause> first;
  for (const auto& sequence : request.sequences) {
    const auto cause = WaitCauseOf(*sequence);
    if (!cause && sequence->phase == Phase::kRunning) return std::nullopt;
    if (!first) first = cause;
  }
  return first;
}

}  // namespace

void Core::Impl::EndOverdue() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us_) {
    const auto found = requests_.find(deadlines_.begin()->second);
    EndAll(*found->second, FinishReason::kDeadline);
    deadlines_.erase(deadlines_.begin());
  }
  BuryFinished();
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
  report.waits_for = WaitCauseOf(*found->second);
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
  stats.kv_bound_us = counts.kv_bound_us;
  stats.queue_bound_us = counts.queue_bound_us;
  stats.compute_bound_us = counts.compute_bound_us;
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
      CHECK(sequence->num_computed() == sequence->kv->committed());
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
