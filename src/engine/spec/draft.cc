#include "engine/spec/draft.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/vocab_loader.h"

namespace kvern::engine {
namespace {

// What is computed of one sequence. The text is that of the last call that came to it, `num_known`
// tokens, and then `guesses`.
struct DraftState {
  std::optional<kv::Sequence> sequence;  // none: nothing is
  size_t num_computed = 0;               // rows; ≤ sequence->length()
  size_t num_known = 0;
  std::vector<TokenId> guesses;
  uint64_t last_call = 0;
  bool has_failed = false;
  std::vector<PagedView> views;  // for the plan, one per group

  void Drop() {
    sequence.reset();
    num_computed = num_known = 0;
    guesses.clear();
  }
};

// One sequence's part in a call.
struct Turn {
  const DraftRequest* request;
  DraftState* state;
  size_t max_guesses;
  bool is_known = false;     // the state knows the text as it is now
  bool is_guessing = false;  // all of it is computed, and there is room for more

  size_t num_missing() const {
    return request->tokens.size() - std::min(state->num_computed, state->num_known);
  }
};

TokenId Highest(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

class DraftProposer final : public Proposer {
 public:
  explicit DraftProposer(DraftModel draft)
      : draft_(std::move(draft)), info_(draft_.executor->info()) {}

  void Propose(std::span<const DraftRequest> batch) override {
    BeginCall(batch);
    CatchUp();
    while (GuessNext()) continue;
    for (const Turn& turn : turns_) {
      if (turn.is_known) turn.state->guesses = *turn.request->draft;
    }
  }

  void Forget(SequenceKey key) override { states_.erase(key); }

 private:
  void BeginCall(std::span<const DraftRequest> batch) {
    ++call_;
    turns_.clear();
    for (const DraftRequest& request : batch) {
      if (request.tokens.size() > info_.max_positions) {
        states_.erase(request.key);
        continue;
      }
      DraftState& state = states_[request.key];
      state.last_call = call_;
      if (state.has_failed) continue;
      // The last guess takes no position.
      const size_t room = info_.max_positions - request.tokens.size() + 1;
      turns_.push_back({&request, &state, std::min(request.max_draft, room)});
    }
    // Those that only go on come first, so that a new prompt does not keep them waiting.
    std::ranges::sort(turns_, {},
                      [](const Turn& turn) { return std::pair(turn.num_missing(), turn.request); });
  }

  // One step of tokens that were not computed yet; the last of a text gives its first guess.
  void CatchUp() {
    BeginStep();
    size_t budget = info_.max_step_tokens;
    for (Turn& turn : turns_) {
      if (budget == 0) break;
      if (!BringUpToDate(turn)) continue;
      const size_t missing = turn.num_missing();
      const size_t count = std::min(missing, budget);
      AddSlice(turn, turn.request->tokens.subspan(turn.state->num_computed, count),
               count == missing);
      budget -= count;
    }
    RunStep();
    for (Turn* const turn : step_turns_) {
      if (!turn->state->sequence) continue;
      // The last row stays open: a call with the same text computes it again, for its logits.
      const size_t final_rows = turn->request->tokens.size() - 1;
      turn->state->sequence->Commit(std::min(turn->state->num_computed, final_rows));
    }
  }

  // One more guess for each text that wants one. False: none does. No more sequences guess than
  // fitted into the step before.
  bool GuessNext() {
    BeginStep();
    for (Turn& turn : turns_) {
      if (!turn.is_guessing) continue;
      const std::span<const TokenId> last(&turn.request->draft->back(), 1);
      if (turn.request->draft->size() >= turn.max_guesses || !Append(*turn.state, last)) {
        turn.is_guessing = false;
        continue;
      }
      AddSlice(turn, last, true);
    }
    RunStep();
    return !step_turns_.empty();
  }

  // Rows of the text's every token are valid or writable then. False: not in this call.
  bool BringUpToDate(Turn& turn) {
    DraftState& state = *turn.state;
    const std::span<const TokenId> tokens = turn.request->tokens;
    if (state.sequence) TakeBack(state, tokens);
    if (!state.sequence && !Begin(turn)) return false;
    const auto more = tokens.subspan(state.sequence->length());
    if (!more.empty() && !Append(state, more)) {
      state.Drop();
      return false;
    }
    state.num_known = tokens.size();
    turn.is_known = true;
    return true;
  }

  // Guesses that the text did not go on with are forgotten, and the last token if nothing else is
  // left to compute.
  void TakeBack(DraftState& state, std::span<const TokenId> tokens) {
    CHECK(tokens.size() >= state.num_known);
    if (state.num_computed < state.num_known) return;
    size_t right = state.num_known;
    while (right < std::min(state.num_computed, tokens.size()) &&
           tokens[right] == state.guesses[right - state.num_known]) {
      ++right;
    }
    right = std::min(right, tokens.size() - 1);
    if (!state.sequence->Truncate(right).ok()) {
      state.Drop();
      return;
    }
    state.num_computed = right;
  }

  bool Begin(Turn& turn) {
    const std::span<const TokenId> tokens = turn.request->tokens;
    kv::Lease lease =
        draft_.cache->Lookup({.ns = draft_.ns, .tokens = tokens, .max_hit = tokens.size() - 1});
    if (IsComputedInThisCall(lease)) return false;
    const size_t missing =
        tokens.size() - lease.num_ram_tokens() - lease.num_partial_tokens() + turn.max_guesses;
    do {
      auto sequence = draft_.cache->Admit(lease, {.reserve_tokens = missing});
      if (!sequence.ok()) continue;
      turn.state->num_computed = sequence->length();
      turn.state->sequence = std::move(sequence).value();
      return true;
    } while (EvictIdlest());
    return false;
  }

  // What is missing comes from another text of the batch soon, at no cost.
  bool IsComputedInThisCall(const kv::Lease& lease) const {
    const auto producer = lease.producer();
    if (!producer || !producer->sequence) return false;
    return std::ranges::any_of(turns_, [&](const Turn& turn) {
      return turn.state->sequence && turn.state->sequence->id() == *producer->sequence;
    });
  }

  bool Append(DraftState& state, std::span<const TokenId> tokens) {
    do {
      if (state.sequence->Append(tokens).ok()) return true;
    } while (EvictIdlest());
    return false;
  }

  // Of the sequences that are not in this call. False: there is none.
  bool EvictIdlest() {
    DraftState* idlest = nullptr;
    for (auto& entry : states_) {
      DraftState& state = entry.second;
      if (!state.sequence || state.last_call == call_) continue;
      // Ids break ties, so that the map's order never shows.
      const auto age = [](const DraftState& s) { return std::pair(s.last_call, s.sequence->id()); };
      if (idlest == nullptr || age(state) < age(*idlest)) idlest = &state;
    }
    if (idlest == nullptr) return false;
    idlest->Drop();
    return true;
  }

  void BeginStep() {
    plan_.slices.clear();
    step_turns_.clear();
  }

  void AddSlice(Turn& turn, std::span<const TokenId> tokens, bool wants_guess) {
    DraftState& state = *turn.state;
    state.views.clear();
    for (size_t group = 0; group < info_.groups.size(); ++group) {
      state.views.push_back(state.sequence->View(static_cast<kv::GroupId>(group)));
    }
    plan_.slices.push_back({.tokens = tokens,
                            .first_position = static_cast<uint32_t>(state.num_computed),
                            .views = state.views,
                            .num_logits = wants_guess ? 1u : 0u});
    step_turns_.push_back(&turn);
  }

  void RunStep() {
    if (plan_.slices.empty()) return;
    const auto outputs = draft_.executor->Execute(plan_);
    for (size_t i = 0; i < step_turns_.size(); ++i) {
      Turn& turn = *step_turns_[i];
      if (!outputs.ok() || !(*outputs)[i].status.ok()) {
        turn.state->Drop();
        turn.state->has_failed = true;
        turn.is_guessing = false;
        continue;
      }
      turn.state->num_computed += plan_.slices[i].tokens.size();
      const SliceOutput& output = (*outputs)[i];
      if (output.logits.empty()) continue;
      turn.request->draft->push_back(Highest(output.logits[0]));
      turn.is_guessing = true;
    }
  }

  const DraftModel draft_;  // outlives the sequences in its cache
  const ExecutorInfo info_;
  std::unordered_map<SequenceKey, DraftState> states_;
  uint64_t call_ = 0;

  // Of the call.
  std::vector<Turn> turns_;
  StepPlan plan_;
  std::vector<Turn*> step_turns_;  // of each slice
};

Status CheckSameVocab(const DraftModel& draft, const TargetModel& target) {
  const uint32_t vocab_size = draft.executor->info().vocab_size;
  if (vocab_size != target.vocab_size) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "its vocabulary has {} tokens, the model's {}: use a model of the same family",
                  vocab_size, target.vocab_size);
  }
  if (draft.tokenizer == nullptr || target.tokenizer == nullptr) return {};
  const auto& drafted = draft.tokenizer->vocab().tokens;
  const auto& verified = target.tokenizer->vocab().tokens;
  for (size_t i = 0; i < std::min(drafted.size(), verified.size()); ++i) {
    if (drafted[i].text == verified[i].text) continue;
    return Errorf(ErrorCode::kInvalidArgument,
                  "its token {} is {:?}, the model's {:?}: use a model of the same family", i,
                  drafted[i].text, verified[i].text);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Proposer>> MakeDraftProposer(DraftModel draft, const TargetModel& target) {
  KVERN_RETURN_IF_ERROR(CheckSameVocab(draft, target));
  return std::unique_ptr<Proposer>(std::make_unique<DraftProposer>(std::move(draft)));
}

}  // namespace kvern::engine
