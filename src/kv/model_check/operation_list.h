// What the model checkers' test cases are made of: lists of operations, drawn by weight from a
// table of actions, printed and read again. Plain data.
//
// An operation names the objects that it works on modulo how many there are, and carries the
// randomness that it needs. So it means something in any state, and a list from which some were
// removed is again a case.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace kvern::kv::model_check {

template <typename Action>
struct OperationOf {
  Action action{};
  uint32_t object = 0;  // which lease, request, …
  uint32_t count = 0;   // how many tokens, steps, …
  uint64_t random = 0;  // for whatever else it chooses
};

// One row for each action, in order of its values.
template <typename Action>
struct ActionRow {
  Action action;
  std::string_view name;
  uint32_t weight;
};

// The list of a seed, of those actions that `is_possible` says are.
template <typename Action, typename Filter>
std::vector<OperationOf<Action>> DrawOperations(std::span<const ActionRow<Action>> rows,
                                                Filter is_possible, uint64_t seed,
                                                size_t num_operations) {
  std::vector<Action> lots;  // each as often as its weight
  for (const ActionRow<Action>& row : rows) {
    if (is_possible(row.action)) lots.insert(lots.end(), row.weight, row.action);
  }
  SplitMix64 random(seed);
  std::vector<OperationOf<Action>> operations(num_operations);
  for (OperationOf<Action>& operation : operations) {
    operation = {.action = lots[random.Below(lots.size())],
                 .object = static_cast<uint32_t>(random.Below(64)),
                 .count = static_cast<uint32_t>(random.Below(64)),
                 .random = random.Next()};
  }
  return operations;
}

// "append 3 5 0123456789abcdef", and back.
template <typename Action>
std::string PrintOperation(std::span<const ActionRow<Action>> rows,
                           const OperationOf<Action>& operation) {
  return fmt::format("{} {} {} {:016x}", rows[static_cast<size_t>(operation.action)].name,
                     operation.object, operation.count, operation.random);
}

template <typename Action>
std::optional<OperationOf<Action>> ReadOperation(std::span<const ActionRow<Action>> rows,
                                                 std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::string name;
  OperationOf<Action> operation;
  stream >> name >> operation.object >> operation.count >> std::hex >> operation.random;
  if (stream.fail()) return std::nullopt;
  for (const ActionRow<Action>& row : rows) {
    if (row.name != name) continue;
    operation.action = row.action;
    return operation;
  }
  return std::nullopt;
}

}  // namespace kvern::kv::model_check
