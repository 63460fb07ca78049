#include "engine/exec/one_answer/core_run.h"

#include <algorithm>
#include <utility>

#include "engine/spec/table.h"

namespace kvern::engine::one_answer {
namespace {

// Steps in a row in which nothing is computed, though requests are live: then something is stuck.
constexpr uint64_t kMaxIdleSteps = 10'000;
constexpr int64_t kIdleUs = 1000;

}  // namespace

Result<std::unique_ptr<CoreRun>> CoreRun::Make(Lab* lab, const CoreSetup& setup) {
  KVERN_ASSIGN_OR_RETURN(OpenedModel* const model, lab->Open(setup.model));
  std::unique_ptr<CoreRun> run(new CoreRun(model));
  KVERN_ASSIGN_OR_RETURN(run->cache_, Lab::MakeCache(*model, setup.num_blocks, setup.eviction));
  SpeculationOptions speculation;
  KVERN_RETURN_IF_ERROR(run->MakeProposer(lab, setup, speculation));
  const auto end = model->tokenizer().end_of_generation();
  CoreParts parts = {.executor = &run->executor_,
                     .cache = run->cache_.cache.get(),
                     .clock = &run->clock_,
                     .tokenizer = &model->tokenizer(),
                     .proposer = run->proposer_.get(),
                     .ns = model->kv_namespace_spec(),
                     .end_tokens = {end.begin(), end.end()}};
  KVERN_ASSIGN_OR_RETURN(run->core_, Core::Make(std::move(parts), setup.scheduler, speculation));
  return run;
}

Status CoreRun::MakeProposer(Lab* lab, const CoreSetup& setup, SpeculationOptions& options) {
  options.adaptive = setup.adaptive;
  options.max_draft = setup.max_draft;
  if (setup.draft == Draft::kNone) return {};
  options.proposer = setup.draft == Draft::kNgram ? "ngram" : "draft";
  options.draft_model = lab->model_path();
  OpenedModel* drafter = &model_;
  if (setup.draft == Draft::kRandom) {
    KVERN_ASSIGN_OR_RETURN(drafter, lab->OpenTwin(setup.model));
  }
  KVERN_ASSIGN_OR_RETURN(draft_cache_, Lab::MakeCache(*drafter, setup.num_blocks, "lru"));
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns,
                         draft_cache_.cache->OpenNamespace(drafter->kv_namespace_spec()));
  draft_executor_ = std::make_unique<RecordingExecutor>(&drafter->executor(), &clock_);
  const auto open_draft = [&](const std::string&) -> Result<DraftModel> {
    return DraftModel{.owner = nullptr,
                      .executor = draft_executor_.get(),
                      .cache = draft_cache_.cache.get(),
                      .ns = ns,
                      .tokenizer = &drafter->tokenizer()};
  };
  const ProposerParts parts = {
      .target = {.vocab_size = model_.config().vocab_size, .tokenizer = &model_.tokenizer()},
      .open_draft = open_draft};
  KVERN_ASSIGN_OR_RETURN(proposer_, engine::MakeProposer(options, parts));
  return {};
}

Status CoreRun::Step(const std::vector<Submission>& submissions) {
  for (size_t i = 0; i < submissions.size(); ++i) {
    const Submission& submission = submissions[i];
    if (!ids_[i] && submission.at_step <= step_) {
      KVERN_ASSIGN_OR_RETURN(ids_[i], core_->Submit(submission.asked->request, sinks_[i].get()));
    }
    if (ids_[i] && submission.cancel_at_step && *submission.cancel_at_step <= step_) {
      core_->Cancel(*ids_[i]);
    }
  }
  const bool has_worked = core_->Step();
  ++step_;
  num_idle_steps_ = has_worked ? 0 : num_idle_steps_ + 1;
  if (!has_worked) clock_.Advance(kIdleUs);
  if (num_idle_steps_ <= kMaxIdleSteps) return {};
  return Errorf(ErrorCode::kIo, "nothing has moved for {} steps, though requests are live",
                kMaxIdleSteps);
}

Result<std::vector<RequestAnswer>> CoreRun::Answer(const std::vector<Submission>& submissions) {
  sinks_.clear();
  for (const Submission& submission : submissions) {
    sinks_.push_back(
        std::make_unique<AnswerSink>(submission.asked->request.n, submission.room_every));
  }
  ids_.assign(submissions.size(), std::nullopt);
  step_ = num_idle_steps_ = 0;
  while (!std::ranges::all_of(sinks_, [](const auto& sink) { return sink->finished(); })) {
    KVERN_RETURN_IF_ERROR(Step(submissions));
  }
  std::vector<RequestAnswer> answers;
  for (size_t i = 0; i < submissions.size(); ++i) {
    const std::string& name = submissions[i].asked->name;
    if (sinks_[i]->is_broken()) {
      return Errorf(ErrorCode::kIo, "{}: the sink was called when it must not be", name);
    }
    answers.push_back(std::move(sinks_[i]->answer()));
    const auto& error = answers.back().report.error;
    if (error) return Errorf(error->code, "{}: {}", name, error->message);
  }
  return answers;
}

std::optional<std::string> CoreRun::FindViolation() const {
  if (!core_->idle()) return "requests are live after the last was answered";
  core_->CheckInvariants();
  cache_.cache->CheckInvariants();
  const EngineStats stats = core_->stats();
  if (executor_.num_conflicts() > 0) {
    return fmt::format("{} rows of logits were computed twice and differ",
                       executor_.num_conflicts());
  }
  if (stats.kv.bytes.active != 0) {
    return fmt::format("{} bytes of blocks are active though nothing is live",
                       stats.kv.bytes.active);
  }
  if (stats.kv.bytes.Sum() != stats.kv.budget_bytes) {
    return fmt::format("the four states sum to {} bytes, not {}", stats.kv.bytes.Sum(),
                       stats.kv.budget_bytes);
  }
  if (stats.self_check_failures > 0) {
    return fmt::format("{} full hits were not what they should be", stats.self_check_failures);
  }
  if (stats.kv.one_answer_violations > 0) {
    return fmt::format("{} blocks had two answers", stats.kv.one_answer_violations);
  }
  return std::nullopt;
}

}  // namespace kvern::engine::one_answer
