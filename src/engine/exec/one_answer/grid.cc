#include "engine/exec/one_answer/grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "engine/exec/one_answer/engine_run.h"

namespace kvern::engine::one_answer {
namespace {

constexpr size_t kMaxGapSteps = 4;
// A draft that knows nothing is right by chance only.
constexpr double kMostRandomAcceptance = 0.05;

size_t TokensOf(const Case& asked) {
  return asked.request.tokens.size() + asked.request.max_tokens.value_or(0);
}

// The requests that a combination serves, as it serves them.
std::vector<Case> CasesFor(const Combination& combination, const std::vector<Case>& cases) {
  std::vector<Case> chosen;
  for (const Case& asked : cases) {
    if (TokensOf(asked) > combination.max_case_tokens) continue;
    if (asked.request.max_tokens.value_or(0) < combination.min_new_tokens) continue;
    for (size_t copy = 0; copy < combination.num_copies; ++copy) {
      const bool is_private = combination.cache == CacheMode::kOff || copy % 2 == 1;
      chosen.push_back(asked);
      if (is_private) chosen.back().request.cache.use = false;
    }
  }
  return chosen;
}

// What a run must have shown beside its answers.
void CheckCounts(const Combination& combination, Outcome& outcome) {
  const EngineStats& stats = outcome.stats;
  if (stats.preemptions < combination.min_preemptions) {
    outcome.Find(fmt::format("{} preemptions, not {} or more", stats.preemptions,
                             combination.min_preemptions));
  }
  if (combination.cache == CacheMode::kWarm && stats.self_checks == 0) {
    outcome.Find("no full hit was checked, though the cache was warm");
  }
  if (combination.cache == CacheMode::kOff && stats.kv.prompts.hit() > 0) {
    outcome.Find(
        fmt::format("{} tokens were found, though nobody uses the cache", stats.kv.prompts.hit()));
  }
  if (combination.setup.scheduler.target_token_us > 0 && outcome.num_left == 0) {
    outcome.Find("no chunk was left between two layers, though time was short");
  }
  const auto accepted = static_cast<double>(stats.accepted_tokens);
  const auto drafted = static_cast<double>(stats.drafted_tokens);
  if (combination.setup.draft != Draft::kNone && !combination.setup.adaptive && drafted == 0) {
    outcome.Find("nothing was drafted");
  }
  if (combination.setup.draft == Draft::kRandom && accepted > kMostRandomAcceptance * drafted) {
    outcome.Find(fmt::format("{} of {} random drafts were accepted", accepted, drafted));
  }
}

// The model itself as its own draft is always right where it is asked for what is likeliest.
void CheckOwnDrafts(const std::vector<Submission>& submissions,
                    const std::vector<RequestAnswer>& answers, Outcome& outcome) {
  for (size_t i = 0; i < submissions.size(); ++i) {
    const Report& report = answers[i].report;
    if (!submissions[i].asked->is_plain_greedy) continue;
    if (report.accepted_tokens == report.drafted_tokens) continue;
    outcome.Find(fmt::format("{}: of {} tokens that the model itself drafted {} were accepted",
                             submissions[i].asked->name, report.drafted_tokens,
                             report.accepted_tokens));
  }
}

Status RunByEngine(Lab& lab, Reference& reference, const Combination& combination,
                   const std::vector<Submission>& submissions, Outcome& outcome) {
  KVERN_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, OpenEngine(&lab, combination.setup));
  const size_t num_passes = combination.cache == CacheMode::kWarm ? 2 : 1;
  for (size_t pass = 0; pass < num_passes; ++pass) {
    KVERN_ASSIGN_OR_RETURN(const auto answers, AnswerByEngine(*engine, submissions));
    KVERN_RETURN_IF_ERROR(CompareAnswers(reference, submissions, answers, nullptr, outcome));
    if (combination.setup.draft == Draft::kSelf) CheckOwnDrafts(submissions, answers, outcome);
  }
  engine->Drain();
  outcome.stats = engine->stats();
  if (outcome.stats.kv.bytes.active > 0) outcome.Find("blocks are active though nothing is live");
  if (outcome.stats.self_check_failures > 0) outcome.Find("a full hit was not what it should be");
  if (outcome.stats.kv.one_answer_violations > 0) outcome.Find("a block had two answers");
  return {};
}

Status RunByCore(Lab& lab, Reference& reference, const Combination& combination,
                 const std::vector<Submission>& submissions, Outcome& outcome) {
  KVERN_ASSIGN_OR_RETURN(const auto run, CoreRun::Make(&lab, combination.setup));
  const size_t num_passes = combination.cache == CacheMode::kWarm ? 2 : 1;
  for (size_t pass = 0; pass < num_passes; ++pass) {
    std::vector<RequestAnswer> answers;
    if (combination.arrival == Arrival::kInTurn) {
      for (const Submission& submission : submissions) {
        KVERN_ASSIGN_OR_RETURN(auto answer, run->Answer({{.asked = submission.asked}}));
        answers.push_back(std::move(answer[0]));
      }
    } else {
      KVERN_ASSIGN_OR_RETURN(answers, run->Answer(submissions));
    }
    KVERN_RETURN_IF_ERROR(CompareAnswers(reference, submissions, answers, &run->logits(), outcome));
    if (combination.setup.draft == Draft::kSelf) CheckOwnDrafts(submissions, answers, outcome);
    if (const auto violation = run->FindViolation()) outcome.Find(*violation);
  }
  outcome.num_rows = run->logits().size();
  outcome.stats = run->stats();
  outcome.num_left = run->num_left();
  return {};
}

}  // namespace

Result<std::span<const TokenId>> Grid::Docs() {
  if (docs_.empty()) {
    KVERN_ASSIGN_OR_RETURN(OpenedModel* const model, lab_.Open({}));
    KVERN_ASSIGN_OR_RETURN(docs_, ReadDocs(model->tokenizer(), docs_folder_));
  }
  return std::span<const TokenId>(docs_);
}

Result<AnsweredSet*> Grid::SetOf(const std::string& k_dtype, const std::string& v_dtype) {
  std::unique_ptr<AnsweredSet>& known = sets_[{k_dtype, v_dtype}];
  if (known != nullptr) return known.get();
  KVERN_ASSIGN_OR_RETURN(const auto docs, Docs());
  KVERN_ASSIGN_OR_RETURN(OpenedModel* const model, lab_.Open({}));
  auto made = std::make_unique<AnsweredSet>(AnsweredSet{Reference(&lab_, k_dtype, v_dtype)});
  const auto answer = [&](const Request& request) { return made->reference.Answer(request); };
  KVERN_ASSIGN_OR_RETURN(made->cases, MakeCases(model->tokenizer(), docs, answer));
  known = std::move(made);
  return known.get();
}

Result<Outcome> Grid::Run(const Combination& combination, uint64_t seed) {
  const ModelKey& model = combination.setup.model;
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set, SetOf(model.k_dtype, model.v_dtype));
  const std::vector<Case> cases = CasesFor(combination, set->cases);
  std::vector<Submission> submissions;
  submissions.reserve(cases.size());
  for (const Case& asked : cases) submissions.push_back({.asked = &asked});
  SplitMix64 random(seed);
  if (combination.arrival == Arrival::kRandom || combination.arrival == Arrival::kThreads) {
    submissions = ArriveAtRandom(std::move(submissions), random);
  }
  Outcome outcome;
  const auto run = combination.arrival == Arrival::kThreads ? RunByEngine : RunByCore;
  const Status status = run(lab_, set->reference, combination, submissions, outcome);
  if (!status.ok()) {
    outcome.Find(status.error().message);
    return outcome;
  }
  CheckCounts(combination, outcome);
  return outcome;
}

Result<Outcome> Grid::CheckReference(size_t max_prompt_tokens) {
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set, SetOf("f16", "f16"));
  Outcome outcome;
  for (const Case& asked : set->cases) {
    if (asked.request.tokens.size() > max_prompt_tokens) continue;
    KVERN_ASSIGN_OR_RETURN(const ReferenceAnswer* const expected, set->reference.Of(asked));
    KVERN_ASSIGN_OR_RETURN(const auto difference, set->reference.CheckWithoutCache(asked));
    if (difference) outcome.Find(fmt::format("{}: without any cache: {}", asked.name, *difference));
    ++outcome.num_answers;
    for (const CompletionAnswer& completion : expected->answer.completions) {
      outcome.num_tokens += std::min<size_t>(completion.tokens.size(), 16);
      if (!asked.is_stopped || completion.finish == kvern::FinishReason::kStop) continue;
      outcome.Find(
          fmt::format("{}: was to be stopped, and said all of '{}'", asked.name, completion.text));
    }
  }
  outcome.num_rows = outcome.num_tokens;
  return outcome;
}

Status CompareAnswers(Reference& reference, const std::vector<Submission>& submissions,
                      const std::vector<RequestAnswer>& answers, const LogitHashes* logits,
                      Outcome& outcome) {
  for (size_t i = 0; i < submissions.size(); ++i) {
    const Case& asked = *submissions[i].asked;
    KVERN_ASSIGN_OR_RETURN(const ReferenceAnswer* const expected, reference.Of(asked));
    bool was_cut = false;
    for (const CompletionAnswer& completion : answers[i].completions) {
      was_cut |= completion.finish == kvern::FinishReason::kCancelled;
      outcome.num_tokens += completion.tokens.size();
    }
    ++outcome.num_answers;
    auto difference = FindDifference(expected->answer, answers[i], was_cut);
    if (!difference && logits != nullptr) {
      difference = FindLogitDifference(expected->logits, *logits, *asked.request.seed, was_cut);
    }
    if (difference) outcome.Find(fmt::format("{}: {}", asked.name, *difference));
  }
  return {};
}

std::vector<Submission> ArriveAtRandom(std::vector<Submission> submissions, SplitMix64& random) {
  for (size_t i = submissions.size(); i > 1; --i) {
    std::swap(submissions[i - 1], submissions[random.Below(i)]);
  }
  uint64_t step = 0;
  for (Submission& submission : submissions) {
    submission.at_step = step;
    step += random.Below(kMaxGapSteps);
  }
  return submissions;
}

}  // namespace kvern::engine::one_answer
