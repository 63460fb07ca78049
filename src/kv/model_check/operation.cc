#include "kv/model_check/operation.h"

#include <iterator>

namespace kvern::kv::model_check {
namespace {

constexpr ActionRow<Action> kActions[] = {
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
    {Action::kSetQuotas, "set-quotas", 8},
    {Action::kDropAll, "drop-all", 2},
    {Action::kExport, "export", 6},
    {Action::kImport, "import", 10},
    {Action::kExplain, "explain", 15},
    {Action::kSetTime, "set-time", 20},
    {Action::kRefuse, "refuse", 15},
    {Action::kTierFault, "tier-fault", 15},
};
static_assert(std::size(kActions) == kNumActions);

constexpr std::span<const ActionRow<Action>> kRows = kActions;

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
    case Action::kSetQuotas:
      return setup.has_quotas;
    case Action::kRefuse:
      return setup.has_refusals;
    default:
      return true;
  }
}

}  // namespace

std::vector<Operation> MakeOperations(const CacheSetup& setup, uint64_t seed, size_t num_steps) {
  const auto is_possible = [&](Action action) { return IsOf(setup, action); };
  return DrawOperations(kRows, is_possible, seed, num_steps);
}

std::string ToText(const Operation& operation) { return PrintOperation(kRows, operation); }

std::optional<Operation> ParseOperation(std::string_view line) {
  return ReadOperation(kRows, line);
}

}  // namespace kvern::kv::model_check
