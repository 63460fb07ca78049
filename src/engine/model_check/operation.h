// What the simulation does to an engine, as plain data: a list of operations is a test case.
//
// An operation names the request that it works on modulo how many there are, and carries the
// randomness that it needs. So it means something in any state, and a list from which some were
// removed is again a case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_check/setup.h"

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
  kRestart,  // the engine is destroyed with everybody in it, and another goes on with its cache
  kFailSlice,
  kFailStep,
  kTierFault,
};
inline constexpr size_t kNumActions = static_cast<size_t>(Action::kTierFault) + 1;

struct Operation {
  Action action = Action::kSubmit;
  uint32_t object = 0;  // which request, text, …
  uint32_t count = 0;   // how many steps, …
  uint64_t random = 0;  // for whatever else it chooses
};

std::string_view Name(Action action);

// The case of a seed.
std::vector<Operation> MakeOperations(const EngineSetup& setup, uint64_t seed, size_t num_steps);

// "submit 3 5 0123456789abcdef", and back.
std::string ToText(const Operation& operation);
std::optional<Operation> ParseOperation(std::string_view line);

}  // namespace kvern::engine::model_check
