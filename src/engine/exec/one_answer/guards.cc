#include "engine/exec/one_answer/guards.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/exec/one_answer/core_run.h"

namespace kvern::engine::one_answer {
namespace {

constexpr size_t kBlocksForAll = 1024;

// An element of a block of 16-bit types.
struct Element {
  size_t block;
  uint32_t layer;
  uint32_t slot;  // which token of the block
  bool is_value;  // of V, not K
};

std::byte* Find(const compute::KvLayout& layout, std::byte* block, const Element& element) {
  constexpr size_t kBytes = 2;
  if (element.is_value) {
    return block + layout.v_offset(element.layer, 0) + element.slot * layout.v_dim() * kBytes;
  }
  return block + layout.k_offset(element.layer, 0) + element.slot * kBytes;
}

struct Flip {
  const char* name;
  Element element;
  size_t byte;
  std::byte bits;
};

Case MakeCase(std::string name, std::span<const TokenId> prompt, size_t max_tokens, uint64_t seed) {
  Case made;
  made.name = std::move(name);
  made.request.tokens.assign(prompt.begin(), prompt.end());
  made.request.max_tokens = max_tokens;
  made.request.ignore_end = true;
  made.request.seed = seed;
  made.request.sampling.temperature = 0;
  made.request.sampling.num_logprobs = 5;
  return made;
}

// Answers `cases` together in `run`, and compares those that `compared` says.
Status Compare(CoreRun& run, Reference& reference, const std::vector<const Case*>& cases,
               const std::function<bool(const Case&)>& compared, Outcome& outcome) {
  std::vector<Submission> submissions;
  submissions.reserve(cases.size());
  for (const Case* asked : cases) submissions.push_back({.asked = asked});
  KVERN_ASSIGN_OR_RETURN(std::vector<RequestAnswer> answers, run.Answer(submissions));
  for (size_t i = submissions.size(); i-- > 0;) {
    if (compared(*submissions[i].asked)) continue;
    submissions.erase(submissions.begin() + static_cast<ptrdiff_t>(i));
    answers.erase(answers.begin() + static_cast<ptrdiff_t>(i));
  }
  return CompareAnswers(reference, submissions, answers, &run.logits(), outcome);
}

bool Everybody(const Case&) { return true; }

void Expect(Outcome& outcome, const std::string& what, uint64_t actual, uint64_t expected) {
  if (actual == expected) return;
  outcome.Find(fmt::format("{}: {}, not {}", what, actual, expected));
}

Status RunFlip(Lab& lab, Reference& reference, const Case& asked, const Flip& flip,
               Outcome& outcome) {
  KVERN_ASSIGN_OR_RETURN(const auto run, CoreRun::Make(&lab, {.num_blocks = kBlocksForAll}));
  std::vector<std::byte*> blocks;
  run->executor().before = [&](const StepPlan& plan) {
    const PagedView& view = plan.slices[0].views[0];
    if (blocks.empty()) blocks.assign(view.blocks, view.blocks + view.num_blocks);
  };
  KVERN_RETURN_IF_ERROR(Compare(*run, reference, {&asked}, Everybody, outcome));
  Find(run->model().layout(), blocks[flip.element.block], flip.element)[flip.byte] ^= flip.bits;
  KVERN_RETURN_IF_ERROR(Compare(*run, reference, {&asked}, Everybody, outcome));
  const std::string name = flip.name;
  Expect(outcome, name + ": full hits checked", run->stats().self_checks, 1);
  Expect(outcome, name + ": full hits that differ", run->stats().self_check_failures, 1);
  // What was damaged is gone, and was computed again.
  KVERN_RETURN_IF_ERROR(Compare(*run, reference, {&asked}, Everybody, outcome));
  Expect(outcome, name + ": full hits that differ later", run->stats().self_check_failures, 1);
  Expect(outcome, name + ": active bytes", run->stats().kv.bytes.active, 0);
  const EngineStats stats = run->stats();
  outcome.num_rows = run->logits().size();
  outcome.stats.steps += stats.steps;
  outcome.stats.self_checks += stats.self_checks;
  return {};
}

}  // namespace

Result<Outcome> CheckSharedPrefix(Lab& lab, Grid& grid, bool compares_all) {
  KVERN_ASSIGN_OR_RETURN(const auto docs, grid.Docs());
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set, grid.SetOf("f16", "f16"));
  const SharedPrefixLoad load = MakeSharedPrefixLoad(docs);
  Outcome outcome;
  KVERN_ASSIGN_OR_RETURN(const auto run, CoreRun::Make(&lab, {.num_blocks = kBlocksForAll}));
  std::vector<const Case*> cases;
  for (const Case& asked : load.cases) cases.push_back(&asked);
  const auto compared = [&](const Case& asked) {
    return compares_all || &asked == cases.front() || &asked == cases.back();
  };
  KVERN_RETURN_IF_ERROR(Compare(*run, set->reference, cases, compared, outcome));

  // A tail and what is said after it fill the same blocks from the first row to the last: so at the
  // peak everybody has all of theirs. The last token said has no row.
  size_t num_prefilled = load.prefix_tokens, num_blocks = load.prefix_tokens / kBlockTokens;
  for (const Case& asked : load.cases) {
    const size_t tail = asked.request.tokens.size() - load.prefix_tokens;
    num_prefilled += tail;
    num_blocks += (tail + load.max_tokens - 1 + kBlockTokens - 1) / kBlockTokens;
  }
  const EngineStats stats = run->stats();
  const size_t block_bytes = run->model().layout().block_bytes();
  Expect(outcome, "prefilled tokens", stats.prefilled_tokens, num_prefilled);
  // In flight, or from memory where their turn came later.
  Expect(outcome, "tokens found by the others", stats.kv.prompts.hit(),
         (load.num_requests - 1) * load.prefix_tokens);
  Expect(outcome, "peak of active bytes", stats.kv.peak_bytes.active, num_blocks * block_bytes);
  if (const auto violation = run->FindViolation()) outcome.Find(*violation);
  outcome.num_rows = run->logits().size();
  outcome.stats = stats;
  return outcome;
}

Result<Outcome> CheckSelfCheckFires(Lab& lab, Grid& grid) {
  KVERN_ASSIGN_OR_RETURN(const auto docs, grid.Docs());
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set, grid.SetOf("f16", "f16"));
  KVERN_ASSIGN_OR_RETURN(OpenedModel* const model, lab.Open({}));
  const uint32_t last_layer = model->layout().num_layers - 1;
  // Six whole blocks.
  const Case asked = MakeCase("full hit", docs.subspan(3000, 96), 8, 7001);
  const Flip flips[] = {
      {"lowest bit of the last token's K", {5, last_layer, 15, false}, 0, std::byte{1}},
      {"lowest bit of the last token's V", {5, 0, 15, true}, 0, std::byte{1}},
      {"exponent of an earlier token's V", {2, 0, 3, true}, 1, std::byte{0x40}},
      {"exponent of an earlier token's K", {0, 3, 7, false}, 1, std::byte{0x40}},
  };
  Outcome outcome;
  for (const Flip& flip : flips) {
    KVERN_RETURN_IF_ERROR(RunFlip(lab, set->reference, asked, flip, outcome));
  }
  return outcome;
}

Result<Outcome> CheckTwoAnswersFires(Lab& lab, Grid& grid) {
  KVERN_ASSIGN_OR_RETURN(const auto docs, grid.Docs());
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set, grid.SetOf("f16", "f16"));
  // The prompt ends within a block, which the answer completes: both compute it.
  constexpr size_t kPrompt = 90, kPosition = 95;
  const Case first = MakeCase("first", docs.subspan(4000, kPrompt), 40, 7011);
  const Case damaged = MakeCase("damaged", docs.subspan(4000, kPrompt), 40, 7012);
  const Case bystander = MakeCase("bystander", docs.subspan(4200, 50), 40, 7013);
  KVERN_ASSIGN_OR_RETURN(const ReferenceAnswer* const said, set->reference.Of(first));
  Case later = first;
  later.name = "later";
  later.request.seed = 7014;
  for (const SampledToken& token : said->answer.completions[0].tokens) {
    later.request.tokens.push_back(token.id);
  }

  Outcome outcome;
  KVERN_ASSIGN_OR_RETURN(const auto run, CoreRun::Make(&lab, {.num_blocks = kBlocksForAll}));
  const compute::KvLayout& layout = run->model().layout();
  const Element element = {kPosition / kBlockTokens, layout.num_layers - 1,
                           kPosition % kBlockTokens, true};
  size_t num_damaged = 0;
  run->executor().after = [&](const StepPlan& plan) {
    for (const Slice& slice : plan.slices) {
      if (slice.sample == nullptr || slice.sample->params->seed != damaged.request.seed) continue;
      if (slice.first_position != kPosition) continue;
      Find(layout, slice.views[0].blocks[element.block], element)[0] ^= std::byte{1};
      ++num_damaged;
    }
  };
  KVERN_RETURN_IF_ERROR(Compare(
      *run, set->reference, {&first, &damaged, &bystander},
      [&](const Case& asked) { return &asked != &damaged; }, outcome));
  Expect(outcome, "damaged rows", num_damaged, 1);
  Expect(outcome, "blocks with two answers", run->stats().kv.one_answer_violations, 1);
  KVERN_RETURN_IF_ERROR(Compare(*run, set->reference, {&later, &first}, Everybody, outcome));
  Expect(outcome, "blocks with two answers later", run->stats().kv.one_answer_violations, 1);
  Expect(outcome, "active bytes", run->stats().kv.bytes.active, 0);
  outcome.num_rows = run->logits().size();
  outcome.stats = run->stats();
  return outcome;
}

}  // namespace kvern::engine::one_answer
