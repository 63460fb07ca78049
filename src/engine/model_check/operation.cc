#include "engine/model_check/operation.h"

#include <fmt/format.h>

#include <iterator>
#include <sstream>

#include "base/rng.h"

namespace kvern::engine::model_check {
namespace {

struct ActionRow {
  Action action;
  std::string_view name;
  uint32_t weight;
};

constexpr ActionRow kActions[] = {
    {Action::kSubmit, "submit", 60},     {Action::kBurst, "burst", 12},
    {Action::kStep, "step", 150},        {Action::kCancel, "cancel", 12},
    {Action::kRead, "read", 25},         {Action::kPass, "pass", 10},
    {Action::kSkill, "skill", 5},        {Action::kDropCached, "drop-cached", 2},
    {Action::kRestart, "restart", 1},    {Action::kFailSlice, "fail-slice", 5},
    {Action::kFailStep, "fail-step", 3}, {Action::kTierFault, "tier-fault", 10},
};
static_assert(std::size(kActions) == kNumActions);

bool IsOf(const EngineSetup& setup, Action action) {
  switch (action) {
    case Action::kSkill:
      return setup.has_proposer;
    case Action::kFailSlice:
    case Action::kFailStep:
      return setup.has_faults;
    case Action::kTierFault:
      return setup.has_tier;
    default:
      return true;
  }
}

}  // namespace

std::string_view Name(Action action) { return kActions[static_cast<size_t>(action)].name; }

std::vector<Operation> MakeOperations(const EngineSetup& setup, uint64_t seed, size_t num_steps) {
  std::vector<Action> lots;  // each as often as its weight
  for (const ActionRow& row : kActions) {
    if (IsOf(setup, row.action)) lots.insert(lots.end(), row.weight, row.action);
  }
  SplitMix64 random(seed);
  std::vector<Operation> operations(num_steps);
  for (Operation& operation : operations) {
    operation = {.action = lots[random.Below(lots.size())],
                 .object = static_cast<uint32_t>(random.Below(64)),
                 .count = static_cast<uint32_t>(random.Below(64)),
                 .random = random.Next()};
  }
  return operations;
}

std::string ToText(const Operation& operation) {
  return fmt::format("{} {} {} {:016x}", Name(operation.action), operation.object, operation.count,
                     operation.random);
}

std::optional<Operation> ParseOperation(std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::string name;
  Operation operation;
  stream >> name >> operation.object >> operation.count >> std::hex >> operation.random;
  if (stream.fail()) return std::nullopt;
  for (const ActionRow& row : kActions) {
    if (row.name != name) continue;
    operation.action = row.action;
    return operation;
  }
  return std::nullopt;
}

}  // namespace kvern::engine::model_check
