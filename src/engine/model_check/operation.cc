#include "engine/model_check/operation.h"

#include <iterator>

namespace kvern::engine::model_check {
namespace {

constexpr kv::model_check::ActionRow<Action> kActions[] = {
    {Action::kSubmit, "submit", 60},
    {Action::kBurst, "burst", 12},
    {Action::kStep, "step", 150},
    {Action::kCancel, "cancel", 12},
    {Action::kRead, "read", 25},
    {Action::kPass, "pass", 10},
    {Action::kSkill, "skill", 5},
    {Action::kDropCached, "drop-cached", 2},
    {Action::kSetQuotas, "set-quotas", 4},
    {Action::kRestart, "restart", 1},
    {Action::kFailSlice, "fail-slice", 5},
    {Action::kFailStep, "fail-step", 3},
    {Action::kTierFault, "tier-fault", 10},
};
static_assert(std::size(kActions) == kNumActions);

constexpr std::span<const kv::model_check::ActionRow<Action>> kRows = kActions;

bool IsOf(const EngineSetup& setup, Action action) {
  switch (action) {
    case Action::kSkill:
      return setup.has_proposer;
    case Action::kFailSlice:
    case Action::kFailStep:
      return setup.has_faults;
    case Action::kSetQuotas:
      return setup.has_quotas;
    case Action::kTierFault:
      return setup.has_tier;
    default:
      return true;
  }
}

}  // namespace

std::vector<Operation> MakeOperations(const EngineSetup& setup, uint64_t seed, size_t num_steps) {
  const auto is_possible = [&](Action action) { return IsOf(setup, action); };
  return kv::model_check::DrawOperations(kRows, is_possible, seed, num_steps);
}

std::string ToText(const Operation& operation) {
  return kv::model_check::PrintOperation(kRows, operation);
}

std::optional<Operation> ParseOperation(std::string_view line) {
  return kv::model_check::ReadOperation(kRows, line);
}

}  // namespace kvern::engine::model_check
