// AttentionBench: the attention of a forward pass apart from the rest of it: the same plan, tiles
// and threads, over K and V of random rows.
//
// Decoding goes through all layers of its layout, so that K and V come from memory as they do in a
// model; a prefill goes through one, whose K and V are in cache while it computes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "kvern/ids.h"
#include "model/attend.h"
#include "model/attention_plan.h"
#include "model/forward.h"

namespace kvern::cli {

struct AttentionBenchOptions {
  const compute::Isa* isa = nullptr;  // must outlive the bench
  compute::KvLayout layout = {};
  uint32_t num_heads = 0;  // of queries
  uint32_t context = 0;    // tokens whose K and V there are; whole chunks
  uint32_t max_rows = 0;   // tokens of a prefill, sequences of a decode
  size_t max_threads = 0;
};

class AttentionBench {
 public:
  // Errors: kOutOfMemory.
  static Result<std::unique_ptr<AttentionBench>> Create(const AttentionBenchOptions& options);

  // One new token in every layer, behind `context` - 1 others, of each of several sequences that
  // together fill the bench's context, one sequence after the other.
  void Decode(ThreadTeam& team, uint32_t context);

  // One new token in every layer of each of `num_sequences`, behind a prefix that all share.
  // `prefix` is of whole chunks, and less than the bench's context.
  void DecodeShared(ThreadTeam& team, uint32_t num_sequences, uint32_t prefix);

  // All tokens of a prompt, in so many layers.
  void Prefill(ThreadTeam& team, uint32_t num_tokens, uint32_t num_layers);

 private:
  explicit AttentionBench(const AttentionBenchOptions& options);

  Status Load();
  model::ForwardSlice SliceOf(uint32_t first_block, uint32_t first_position,
                              uint32_t num_tokens) const;
  void Attend(ThreadTeam& team, uint32_t num_layers);
  void AttendLayer(ThreadTeam& team, size_t thread, const model::AttentionTask& task);

  const AttentionBenchOptions options_;
  const compute::AttentionKernels& kernels_;
  const size_t stride_;  // floats of a row of queries
  AlignedBuffer memory_;
  std::vector<std::byte*> blocks_;
  std::vector<TokenId> tokens_;  // only their number counts
  std::vector<float> queries_, out_, slots_;
  std::vector<model::TileAttention> threads_;
  std::vector<model::ForwardSlice> slices_;
  std::vector<uint32_t> members_;  // of the group that shares a prefix
  std::vector<model::SharedChunks> shared_;
  model::ForwardBatch batch_;
  model::AttentionPlan plan_;
};

}  // namespace kvern::cli
