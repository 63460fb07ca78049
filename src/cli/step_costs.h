// StepCosts: what one more token costs at growing positions, with the KV cache and without.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"
#include "kvern/ids.h"

namespace kvern::cli {

struct StepCost {
  size_t position;     // of the token that the step computes
  double uncached_ms;  // all tokens before it computed again
  double cached_ms;    // their rows read; the mean of a few steps
  size_t kv_bytes;     // held by the cache
  bool is_same;        // the logits, bit for bit
};

// One row per position that fits the context and `text`, the tokens that stand before it.
Result<std::vector<StepCost>> MeasureStepCosts(engine::OpenedModel& model,
                                               const kv::Strategy& cached,
                                               std::span<const TokenId> text);

// A table, one line a position.
std::string FormatStepCosts(std::span<const StepCost> costs);

// An SVG chart of both costs against the position.
std::string DrawStepCosts(std::span<const StepCost> costs);

}  // namespace kvern::cli
