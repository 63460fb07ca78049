// KvBenchModel: one copy of a model's weights, and an executor for each of several types of K and
// V.
//
// Nothing but the types differs: the same weights, kernels, threads and tokens. Executors work on
// blocks that the caller has (KvBlocks), so that no cache, block table or scheduler is in between.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "cli/bench_kv_types.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "engine/executor.h"
#include "kvern/ids.h"
#include "model/gguf.h"
#include "model/model.h"

namespace kvern::cli {

struct KvBenchModelOptions {
  const compute::Isa* isa = nullptr;  // must outlive the model
  size_t num_threads = 1;
  uint32_t context = 0;  // tokens of a sequence
  uint32_t max_step_tokens = 0;
};

// The part that depends on the types.
struct KvRig {
  KvTypes types;
  compute::KvLayout layout;
  std::unique_ptr<engine::Executor> executor;
};

class KvBenchModel {
 public:
  // Errors: those of loading.
  static Result<std::unique_ptr<KvBenchModel>> Load(const model::Gguf& gguf,
                                                    const KvBenchModelOptions& options);

  // The model must outlive what it makes. Errors: kOutOfMemory.
  Result<KvRig> MakeRig(const KvTypes& types);

  const model::ModelConfig& config() const { return model_->config(); }
  const compute::Isa& isa() const { return *options_.isa; }
  ThreadTeam& team() { return team_; }

 private:
  explicit KvBenchModel(const KvBenchModelOptions& options);

  const KvBenchModelOptions options_;
  ThreadTeam team_;
  std::unique_ptr<model::Model> model_;
};

// Computes `slices` in one step, in which all of them may share their first `shared_chunks`.
// Errors: those of the executor and of each slice. The outputs are valid until the next step.
Result<std::span<const engine::SliceOutput>> RunSlices(engine::Executor& executor,
                                                       std::vector<engine::Slice> slices,
                                                       uint32_t shared_chunks = 0);

// Memory for the blocks of sequences.
class KvBlocks {
 public:
  // Errors: kOutOfMemory.
  static Result<KvBlocks> Create(const KvRig& rig, size_t num_blocks);

  // Rows everywhere: those of the tokens of a first chunk, copied. What a row says does not matter
  // to what reading it costs.
  Status Fill(KvRig& rig);

  std::byte* const* pointers() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  AlignedBuffer memory_;
  std::vector<std::byte*> pointers_;
};

}  // namespace kvern::cli
