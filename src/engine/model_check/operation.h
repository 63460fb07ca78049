// What the simulation does to an engine, as plain data: a list of operations is a test case.
// See kv/model_check/operation_list.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_check/setup.h"
#include "kv/model_check/operation_list.h"

namespace kvern::engine::model_check {

enum class Action : uint8_t {
  kSubmit,  // one request
  kBurst,   // several with one prefix
  kStep,    // some steps
  kCancel,
  kRead,   // a slow reader catches up
  kPass,   // time passes
  kSkill,  // drafts get better or worse
  kDropCached,
  kSetQuotas,
  kRestart,  // the engine is destroyed with everybody in it, and another goes on with its cache
  kFailSlice,
  kFailStep,
  kTierFault,
};
inline constexpr size_t kNumActions = static_cast<size_t>(Action::kTierFault) + 1;

using Operation = kv::model_check::OperationOf<Action>;

// The case of a seed.
std::vector<Operation> MakeOperations(const EngineSetup& setup, uint64_t seed, size_t num_steps);

// "submit 3 5 0123456789abcdef", and back.
std::string ToText(const Operation& operation);
std::optional<Operation> ParseOperation(std::string_view line);

}  // namespace kvern::engine::model_check
