// What the model checker does to a cache, as plain data: a list of operations is a test case.
// See operation_list.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/model_check/operation_list.h"
#include "kv/model_check/setup.h"

namespace kvern::kv::model_check {

enum class Action : uint8_t {
  kLookup,
  kRequest,  // lookup, admit, append the rest of the prompt, commit
  kDropLease,
  kAdmit,
  kWait,
  kRetry,
  kDropWaiter,
  kTakeEvents,
  kStartLoad,
  kPoll,
  kInstall,
  kReserve,
  kAppend,
  kWrite,
  kCommit,
  kTruncate,
  kFork,
  kRelease,
  kKeepSpan,
  kDropCached,
  kSetQuotas,
  kDropAll,
  kExport,
  kImport,
  kExplain,
  kSetTime,
  kRefuse,
  kTierFault,
};
inline constexpr size_t kNumActions = static_cast<size_t>(Action::kTierFault) + 1;

using Operation = OperationOf<Action>;

// The case of a seed.
std::vector<Operation> MakeOperations(const CacheSetup& setup, uint64_t seed, size_t num_steps);

// "append 3 5 0123456789abcdef", and back.
std::string ToText(const Operation& operation);
std::optional<Operation> ParseOperation(std::string_view line);

}  // namespace kvern::kv::model_check
