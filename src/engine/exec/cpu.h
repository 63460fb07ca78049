// CpuExecutor: steps on the CPU through model/forward.h, and sampling, both on one team of threads.
//
// Steps like those before, in slices, rows and sampling, allocate nothing. The logits' memory grows
// with the most rows that a step wanted, and is not part of scratch_bytes.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/thread_team.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "engine/executor.h"
#include "kv/block_store.h"
#include "model/model.h"

namespace kvern::engine {

// `model`, `isa` and `team` must outlive the executor. Errors: kOutOfMemory.
Result<std::unique_ptr<Executor>> MakeCpuExecutor(const model::Model* model,
                                                  const compute::Isa* isa, ThreadTeam* team,
                                                  const compute::KvLayout& layout,
                                                  uint32_t max_step_tokens);

// The layout of a model's one layer group, and the group that the KV library is told.
compute::KvLayout MakeKvLayout(const model::ModelConfig& config, compute::KvDtype k_dtype,
                               compute::KvDtype v_dtype);
kv::GroupSpec MakeGroupSpec(const compute::KvLayout& layout);

// Copies rows between blocks of `layout` (rule K2).
kv::CopyRowsFunction MakeCopyRows(const compute::KvLayout& layout);

}  // namespace kvern::engine
