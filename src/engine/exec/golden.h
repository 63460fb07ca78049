// Golden logits: what every CPU must compute, as digests committed beside the models that they are
// of (rule N12).
//
// A digest covers the logits of all positions of a golden model: a prefill and one-token steps. The
// cases cover every architecture, weight type and KV dtype. When a change alters one, its bits are
// new: raise compute::kNumericsVersion in that change and commit the new digests with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "compute/isa.h"
#include "compute/kv_dtype.h"
#include "model/golden_model.h"

namespace kvern::engine {

struct GoldenCase {
  std::string_view name;
  model::GoldenModelSpec spec;
  compute::KvDtype k_dtype;
  compute::KvDtype v_dtype;
  uint32_t num_prefill;     // tokens of the first step
  std::string_view logits;  // Hash128::ToHex() of what compute::kNumericsVersion gives
};

std::span<const GoldenCase> GoldenCases();

// The digest that `isa` gives. Errors: those of OpenedModel and the executor.
Result<Hash128> DigestLogits(const GoldenCase& golden, const compute::Isa& isa, size_t num_threads);

// Compares all cases, on one thread. Errors: kUnsupported names the first case that differs.
Status CheckGoldenLogits(const compute::Isa& isa);

}  // namespace kvern::engine
