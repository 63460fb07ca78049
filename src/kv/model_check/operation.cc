#include "kv/model_check/operation.h"

#include <fmt/format.h>

#include <sstream>

#include "base/check.h"
#include "base/rng.h"

namespace kvern::kv::model_check {
namespace {

struct ActionRow {
  Action action;
  std::string_view name;
  uint32_t weight;
};

constexpr ActionRow kActions[] = {
    {Action::kLookup, "lookup", 60},
    {Action::kRequest, "request", 60},
    {Action::kDropLease, "drop-lease", 15},
    {Action::kAdmit, "admit", 55},
    {Action::kWait, "wait", 40},
    {Action::kRetry, "retry", 15},
    {Action::kDropWaiter, "drop-waiter", 5},
    {Action::kTakeEvents, "take-events", 40},
    {Action::kStartLoad, "start-load", 30},
    {Action::kPoll, "poll", 40},
    {Action::kInstall, "install", 25},
    {Action::kReserve, "reserve", 30},
    {Action::kAppend, "append", 110},
    {Action::kWrite, "write", 40},
    {Action::kCommit, "commit", 90},
    {Action::kTruncate, "truncate", 25},
    {Action::kFork, "fork", 20},
    {Action::kRelease, "release", 40},
    {Action::kKeepSpan, "keep-span", 8},
    {Action::kDropCached, "drop-cached", 2},
    {Action::kDropAll, "drop-all", 2},
    {Action::kExport, "export", 6},
    {Action::kImport, "import", 10},
    {Action::kExplain, "explain", 15},
    {Action::kSetTime, "set-time", 20},
    {Action::kRefuse, "refuse", 15},
    {Action::kTierFault, "tier-fault", 15},
};
static_assert(std::size(kActions) == kNumActions);

bool IsOf(const CacheSetup& setup, Action action) {
  switch (action) {
    case Action::kStartLoad:
    case Action::kPoll:
    case Action::kInstall:
    case Action::kTierFault:
      return setup.has_tier;
    case Action::kWait:
    case Action::kRetry:
    case Action::kDropWaiter:
    case Action::kTakeEvents:
      return setup.has_waits;
    case Action::kRefuse:
      return setup.has_refusals;
    default:
      return true;
  }
}

}  // namespace

std::string_view Name(Action action) { return kActions[static_cast<size_t>(action)].name; }

std::vector<Operation> MakeOperations(const CacheSetup& setup, uint64_t seed, size_t num_steps) {
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

}  // namespace kvern::kv::model_check
