#include "engine/model_check/simulation.h"

#include <algorithm>
#include <cstdio>

#include "base/hash.h"

namespace kvern::engine::model_check {
namespace {

using kv::model_check::Fail;
using kv::model_check::Require;

constexpr TokenId kEndToken{0};
constexpr size_t kMaxBarrenSteps = 64;

kv::KvCacheOptions CacheOptions(const EngineSetup& setup, kv::Tier* tier) {
  kv::KvCacheOptions options;
  options.groups = setup.groups;
  options.budget_bytes = setup.num_blocks * kBlockBytes;
  options.min_slab_bytes = kBlockBytes;
  options.eviction = std::string(setup.eviction);
  options.span_bytes_per_tenant = setup.span_blocks * kBlockBytes;
  options.tier = tier;
  options.tier_io_blocks = 6;
  return options;
}

ExecutorInfo InfoOf(const EngineSetup& setup, const FakeModel& model) {
  return {.vocab_size = model.vocab_size,
          .max_positions = static_cast<uint32_t>(setup.context),
          .max_step_tokens = static_cast<uint32_t>(setup.scheduler.step_tokens),
          .groups = setup.groups,
          .weight_bytes = 0,
          .scratch_bytes = 0,
          .num_layers = 6,
          .max_carried_tokens = 24};
}

kv::CopyRowsFunction CopyRowsOf(Mutation mutation) {
  const uint32_t num_less = mutation == Mutation::kCopiesTooLittle ? 1 : 0;
  return [num_less](kv::GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens) {
    CopyRows(group, to, from, num_tokens - std::min(num_tokens, num_less));
  };
}

}  // namespace

void SimulationCounts::Add(const SimulationCounts& other) {
  // All fields are counts of one type.
  constexpr size_t kNumFields = sizeof(SimulationCounts) / sizeof(uint64_t);
  auto* const to = reinterpret_cast<uint64_t*>(this);
  const auto* const from = reinterpret_cast<const uint64_t*>(&other);
  for (size_t i = 0; i < kNumFields; ++i) to[i] += from[i];
}

Simulation::Simulation(const EngineSetup& setup, const SimulationOptions& options)
    : setup_(setup),
      options_(options),
      model_{.groups = setup.groups},
      rules_{.end_tokens = {kEndToken}, .context = std::min(setup.context, num_room_tokens())},
      store_(kv::MakeHostStore(CopyRowsOf(options.mutation))) {
  if (setup.has_tier) {
    kv::MemoryTierOptions tier_options;
    tier_options.max_latency_polls = 4;
    tier_options.reorder = true;
    tier_.emplace(tier_options);
  }
  auto cache = kv::KvCache::Make(CacheOptions(setup, tier_ ? &*tier_ : nullptr), store_.get());
  if (!cache.ok()) Fail("KvCache::Make: " + cache.error().message);
  cache_ = std::move(*cache);
  executor_.emplace(&model_, InfoOf(setup, model_), setup.scheduler.step_tokens, &clock_);
  if (setup.has_proposer) proposer_.emplace(&model_, /*seed=*/1);
  StartCore();
}

void Simulation::StartCore() {
  CoreParts parts = {.executor = &*executor_, .cache = cache_.get(), .clock = &clock_};
  parts.proposer = proposer_ ? &*proposer_ : nullptr;
  parts.end_tokens = rules_.end_tokens;
  auto core = Core::Make(std::move(parts), setup_.scheduler, setup_.speculation);
  if (!core.ok()) Fail("Core::Make: " + core.error().message);
  core_ = std::move(*core);
  of_core_ = {.begin_us = clock_.now_us()};
  of_core_.self_checks = executor_->counts().query_only;
}

// Everybody is cancelled, and nothing is held.
void Simulation::Restart() {
  for (const auto& client : live_) client->is_cancelled = true;
  core_.reset();
  for (const auto& client : live_) {
    Require(client->is_finished(), "a request outlives its engine");
  }
  Retire();
  StartCore();
}

Simulation::~Simulation() = default;

void Simulation::PrintTrace(const std::string& line) {
  fmt::print("  {}\n", line);
  std::fflush(stdout);
}

void Simulation::Do(const Operation& operation) {
  Trace("{}: {}", clock_.now_us(), ToText(operation));
  SplitMix64 random(operation.random);
  switch (operation.action) {
    case Action::kSubmit:
      if (num_live() < setup_.max_live) {
        Submit(MakeRequest(MakePrompt(operation, random), random), MakeReading(random));
      }
      break;
    case Action::kBurst:
      Burst(operation);
      break;
    case Action::kStep:
      StepOften(operation);
      break;
    case Action::kCancel:
      Cancel(operation);
      break;
    case Action::kRead:
      Read(operation);
      break;
    case Action::kPass:
      clock_.Advance(static_cast<int64_t>(random.Below(20'000)));
      break;
    case Action::kSkill:
      if (proposer_) proposer_->set_skill(operation.count % 9);
      break;
    case Action::kDropCached:
      cache_->DropCached();
      break;
    case Action::kSetQuotas:
      SetQuotas(random);
      break;
    case Action::kRestart:
      Restart();
      break;
    case Action::kFailSlice:
      executor_->FailSlice(operation.object);
      break;
    case Action::kFailStep:
      executor_->FailStep();
      break;
    case Action::kTierFault:
      PlanTierFault(operation);
      break;
  }
  Retire();
  CheckMemory();
}

void Simulation::StepOften(const Operation& operation) {
  SplitMix64 random(operation.random);
  if (options_.mutation == Mutation::kFlipsBit && operation.object % 8 == 0) {
    executor_->FlipBit(operation.random);
  }
  for (size_t left = 1 + operation.count % 8; left > 0 && !core_->idle(); --left) {
    if (Step()) continue;
    CheckStalled();
    const auto wake_us = core_->next_wake_us();
    if (!wake_us || random.Below(2) == 0) return;
    clock_.Advance(std::max<int64_t>(*wake_us - clock_.now_us(), 0));
  }
}

bool Simulation::Step() {
  const int64_t begin_us = clock_.now_us();
  const ExecutorCounts before = executor_->counts();
  const bool has_computed = core_->Step();
  ++counts_.steps;
  const bool has_executed = executor_->counts().steps > before.steps;
  Require(has_computed || !has_executed, "a step computed something, but says it did not");
  num_barren_steps_ = has_executed || !has_computed ? 0 : num_barren_steps_ + 1;
  Require(num_barren_steps_ < kMaxBarrenSteps,
          "{} steps in a row say that they computed, but did not", num_barren_steps_);
  CheckAfterStep(begin_us);
  return has_computed;
}

void Simulation::FailStalled() {
  const EngineStats stats = core_->stats();
  const bool goes_on = core_->Step();
  Fail(
      fmt::format("{}: {} requests live, nothing is computed, and nobody is waited for: {} "
                  "sequences run, {} wait, {} wait for a prefix, {} load, {} are paused",
                  goes_on ? "a step that could go on says that it cannot" : "deadlock", num_live(),
                  stats.running, stats.waiting, stats.waiting_prefix, stats.loading, stats.paused));
}

// Nothing was computed: somebody must know why.
void Simulation::CheckStalled() {
  if (core_->idle()) return;
  const bool is_reader_behind =
      std::ranges::any_of(live_, [](const auto& client) { return !client->HasRoom(); });
  const auto wake_us = core_->next_wake_us();
  if (!wake_us && !is_reader_behind) FailStalled();
  if (wake_us) return;
  Require(!core_->Step(), "a step computes something where the one before could not");
  Retire();  // whom it may have failed
}

void Simulation::CheckAfterStep(int64_t begin_us) {
  for (const auto& client : live_) {
    ++client->num_steps_live;
    const auto deadline = client->request().deadline_us;
    Require(client->is_finished() || !deadline || client->arrival_us + *deadline > begin_us,
            "request {} lives on after its deadline", static_cast<uint64_t>(client->id));
  }
  Retire();
  CheckMemory();
  CheckStats();
  CheckTime();
  if (counts_.steps % options_.full_check_every == 0) {
    core_->CheckInvariants();
    cache_->CheckInvariants();
  }
}

void Simulation::CheckMemory() const {
  const kv::KvStats stats = cache_->stats();
  Require(stats.bytes.Sum() == stats.budget_bytes, "{} bytes in four states of a budget of {}",
          stats.bytes.Sum(), stats.budget_bytes);
  Require(stats.one_answer_violations == 0 || options_.mutation != Mutation::kNone,
          "{} one-answer violations", stats.one_answer_violations);
  const EngineStats of_core = core_->stats();
  // Who waits holds nothing, but for what it has just loaded.
  if (of_core.running > 0 || of_core.loading > 0 || (tier_ && of_core.waiting > 0)) return;
  size_t zero_bytes = 0;
  for (const kv::GroupSpec& group : setup_.groups) {
    if (group.kind != kv::GroupKind::kFull) zero_bytes += group.block_bytes;
  }
  Require(stats.bytes.active == zero_bytes && stats.bytes.reserved == 0,
          "{} bytes are active and {} reserved, and nobody runs", stats.bytes.active - zero_bytes,
          stats.bytes.reserved);
}

void Simulation::CheckStats() const {
  const EngineStats stats = core_->stats();
  Require(stats.running <= setup_.scheduler.max_running, "{} sequences run, of {} at most",
          stats.running, setup_.scheduler.max_running);
  Require(stats.requests == of_core_.requests, "{} requests were accepted, says the engine, of {}",
          stats.requests, of_core_.requests);
  const uint64_t refused = of_core_.refused + of_core_.displaced;
  // Who throws when told that it is displaced counts as both.
  Require(stats.refused >= refused && stats.refused <= refused + of_core_.thrown,
          "{} requests were refused, says the engine, of {}", stats.refused, refused);
  Require(stats.self_check_failures == 0 || options_.mutation != Mutation::kNone,
          "{} self-checks failed", stats.self_check_failures);
  Require(core_->idle() == live_.empty(), "{} requests live, but the engine is {}", num_live(),
          core_->idle() ? "idle" : "not idle");
  if (core_->idle()) CheckTotals();
}

// The time of every step counts as bound by something, that of the last one with the next.
void Simulation::CheckTime() {
  const EngineStats stats = core_->stats();
  const int64_t bound_us = stats.kv_bound_us + stats.queue_bound_us + stats.compute_bound_us;
  const int64_t passed_us = clock_.now_us() - of_core_.begin_us;
  Require(bound_us >= of_core_.executed_us && bound_us <= passed_us,
          "{} us are bound by something, of {} that passed and {} of steps", bound_us, passed_us,
          of_core_.executed_us);
  of_core_.executed_us = stats.execute_us;
}

void Simulation::CheckTotals() const {
  const EngineStats stats = core_->stats();
  Require(stats.running + stats.waiting + stats.waiting_prefix + stats.loading + stats.paused == 0,
          "an idle engine has {} sequences that run, {} that wait", stats.running, stats.waiting);
  const uint64_t ended = stats.finished + stats.cancelled + stats.failed;
  Require(ended == stats.requests && ended == of_core_.finished,
          "{} requests finished, {} were cancelled, {} failed, of {}", stats.finished,
          stats.cancelled, stats.failed, stats.requests);
  Require(stats.decoded_tokens == of_core_.tokens, "{} tokens were decoded, says the engine, of {}",
          stats.decoded_tokens, of_core_.tokens);
  Require(stats.preemptions == of_core_.preemptions,
          "{} preemptions, says the engine, and {} in reports", stats.preemptions,
          of_core_.preemptions);
  const uint64_t self_checks = executor_->counts().query_only - of_core_.self_checks;
  Require(stats.self_checks <= self_checks, "{} self-checks, says the engine, of {}",
          stats.self_checks, self_checks);
}

// Waiting for ageing_us more than the difference of priorities is worth goes first.
void Simulation::CheckOrder() const {
  const bool by_priority = setup_.scheduler.policy == "priority";
  for (const Turn& late : turns_) {
    for (const Turn& early : turns_) {
      if (!late.admitted_us) break;
      const int64_t worth = by_priority ? late.priority - early.priority : 0;
      const int64_t patience_us = setup_.scheduler.ageing_us * (1 + worth);
      const int64_t when_us = *late.admitted_us;
      const bool was_waiting = early.arrival_us < when_us && early.end_us > when_us &&
                               early.admitted_us.value_or(INT64_MAX) > when_us &&
                               early.waited_us.value_or(INT64_MAX) > when_us;
      Require(!was_waiting || early.arrival_us + patience_us >= late.arrival_us,
              "a request that came at {} with priority {} waits while one that came at {} with "
              "priority {} starts at {}",
              early.arrival_us, early.priority, late.arrival_us, late.priority, when_us);
    }
  }
}

void Simulation::CheckFailure(const Client& client) {
  if (client.has_thrown() || !client.has_finish(FinishReason::kFailed)) return;
  const Error& error = *client.report().error;
  switch (error.code) {
    case ErrorCode::kNonFinite:
      ++num_non_finite_;
      Require(num_non_finite_ <= executor_->counts().failed_slices,
              "{} requests met NaN in {} slices", num_non_finite_,
              executor_->counts().failed_slices);
      return;
    case ErrorCode::kOutOfMemory:
      // A share may have been lowered, or a floor of another raised.
      if (NumNeeded(client.request()) > client.least_room) return;
      ++num_out_of_memory_;
      Require(num_out_of_memory_ <= executor_->counts().failed_lone_steps,
              "a request failed without being alone in a step: {}", error.message);
      return;
    case ErrorCode::kOverloaded:
      ++of_core_.displaced;
      Require(setup_.scheduler.max_waiting < setup_.max_live, "a request fails of overload: {}",
              error.message);
      return;
    default:
      Fail("a request failed: " + error.message);
  }
}

void Simulation::Count(const Client& client) {
  const Report& report = client.report();
  counts_.cancelled += client.has_finish(FinishReason::kCancelled);
  counts_.preemptions += report.preemptions;
  counts_.deadlines += client.has_finish(FinishReason::kDeadline);
  counts_.failed += client.has_finish(FinishReason::kFailed) || client.has_thrown();
  counts_.tokens += client.num_tokens();
  ++of_core_.finished;
  of_core_.thrown += client.has_thrown();
  of_core_.tokens += client.num_tokens();
  of_core_.preemptions += report.preemptions;
  Turn turn = {.priority = client.request().priority,
               .arrival_us = client.arrival_us,
               .end_us = client.arrival_us + *report.total_us,
               .admitted_us = {},
               .waited_us = {}};
  if (report.queue_us) turn.admitted_us = client.arrival_us + *report.queue_us;
  for (const LifecycleEvent& event : report.events) {
    const bool is_wait = event.kind == LifecycleEvent::Kind::kWaiting;
    const bool is_load = event.kind == LifecycleEvent::Kind::kLoading;
    counts_.waits += is_wait;
    counts_.loads += is_load;
    counts_.forks += event.kind == LifecycleEvent::Kind::kForked;
    counts_.pauses += event.kind == LifecycleEvent::Kind::kPaused;
    if ((is_wait || is_load) && !turn.waited_us) {
      turn.waited_us = client.arrival_us + event.time_us;
    }
  }
  // Who is at a share lets others go first.
  if (!setup_.has_quotas) turns_.push_back(turn);
}

// Takes leave of those that have finished.
void Simulation::Retire() {
  constexpr size_t kMaxCorpus = 12;
  for (size_t i = 0; i < live_.size();) {
    Client& client = *live_[i];
    if (!client.is_finished()) {
      ++i;
      continue;
    }
    Trace("request {} ends: {} tokens, {} steps, {} preemptions{}",
          static_cast<uint64_t>(client.id), client.num_tokens(), client.num_steps_live,
          client.report().preemptions,
          client.report().error ? ", " + client.report().error->message : "");
    Require(!core_ || !core_->report(client.id), "a request that has ended has a report");
    CheckFailure(client);
    Count(client);
    if (corpus_.size() == kMaxCorpus) corpus_.erase(corpus_.begin());
    corpus_.push_back(client.Conversation(client.request().n - 1));
    const uint64_t trace = client.trace();
    trace_ = Hash64(std::as_bytes(std::span(&trace, 1)), trace_);
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Simulation::Finish() {
  size_t num_tokens = 0;
  for (const auto& client : live_) {
    const size_t num_new = client->request().max_tokens.value_or(setup_.context);
    num_tokens += client->request().n * (client->request().tokens.size() + num_new);
    client->ReadAtOnce();
    client->Read();
  }
  size_t num_stalls = 0;
  const uint64_t most = counts_.steps + 1000 + 10 * num_tokens;
  while (!core_->idle()) {
    Require(counts_.steps < most, "{} requests have not ended after 10 steps for each token",
            num_live());
    if (Step()) continue;
    if (core_->idle()) break;
    const auto wake_us = core_->next_wake_us();
    if (!wake_us) FailStalled();
    num_stalls = *wake_us > clock_.now_us() ? 0 : num_stalls + 1;
    Require(num_stalls < 1000, "the engine wants to be woken at once, and does nothing");
    clock_.Advance(std::max<int64_t>(*wake_us - clock_.now_us(), 0));
  }
  Retire();
  CheckMemory();
  if (proposer_) {
    Require(proposer_->num_known() == 0, "{} sequences were not forgotten by the proposer",
            proposer_->num_known());
  }
  core_->CheckInvariants();
  CheckTotals();
  CheckOrder();
  core_.reset();
  leaked_.reset();
  cache_->DropCached();
  cache_->CheckInvariants();
}

uint64_t Simulation::trace() const {
  const uint64_t traces[] = {trace_, executor_->trace(), counts_.steps};
  return Hash64(std::as_bytes(std::span(traces)), 0);
}

SimulationCounts Simulation::counts() const {
  SimulationCounts counts = counts_;
  const ExecutorCounts& executed = executor_->counts();
  counts.self_checks = executed.query_only;
  counts.parts = executed.parts;
  counts.shared_groups = executed.shared_groups;
  counts.drafts = executed.drafts;
  counts.accepted = executed.accepted;
  return counts;
}

}  // namespace kvern::engine::model_check
