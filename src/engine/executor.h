// Executor: runs the step that a scheduler planned, on real hardware (or, in tests and simulation,
// not at all).
//
// A step is a list of slices: consecutive new tokens of one sequence. The executor computes their
// K/V into the blocks that their views name, gives logits where they are wanted, and samples where
// a sampler is given. What a slice gets depends on its own tokens and blocks only; grouping is a
// hint about memory traffic. Failures of one slice never touch another.
//
// One thread at a time. Everything a plan points to must stay valid during Execute(); what
// Execute() returns is valid until the next call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/pace.h"
#include "base/result.h"
#include "kvern/ids.h"
#include "kvern/kv_store.h"
#include "kvern/paged_view.h"
#include "kvern/sampling.h"

namespace kvern::engine {

// What the sampler of one sequence needs beside the logits (rule N10).
struct SampleRequest {
  const SamplingParams* params;
  // Prompt and completion up to the slice's last token. Tokens that are only drafts are at the end.
  std::span<const TokenId> history;
  size_t num_prompt_tokens;   // ≤ history.size()
  uint32_t completion_index;  // which of a request's n completions
};

struct Slice {
  std::span<const TokenId> tokens;   // at least one
  uint32_t first_position;           // of tokens[0]
  std::span<const PagedView> views;  // one per layer group; blocks up to the last token
  uint32_t num_logits = 0;           // wanted for the last tokens: 0 … tokens.size()
  // Samples after each of the last num_logits ≥ 1 tokens in turn, as long as what was sampled is
  // the slice's next token: so drafts are verified (rule G6).
  const SampleRequest* sample = nullptr;
  // For one token whose K/V an earlier step stored: it attends and stores nothing; its K/V is
  // computed and compared with what is stored (rule K5).
  bool query_only = false;
  // A chunk of a prompt that is left between two layers when time is up (StepPlan::pace), and goes
  // on there in a later plan. It is the plan's last slice, in no group, of at most
  // max_carried_tokens tokens, and computed when all others have been sampled.
  bool is_chunk = false;
  // Of a chunk. Behind the first, the last plan that had one left the same tokens there.
  uint32_t first_layer = 0;
};

// Slices whose first `num_chunks` KV chunks are the same blocks in every group.
struct SharedPrefix {
  std::span<const uint32_t> slices;  // indices into the plan, ascending; each in at most one group
  uint32_t num_chunks;
};

struct StepPlan {
  std::vector<Slice> slices;
  std::vector<SharedPrefix> shared;  // optional; shared_groups.h finds them
  Pace* pace = nullptr;              // of its chunk's layers; null: there is time for all
};

struct SliceOutput {
  Status status;  // kNonFinite: this slice failed, and what it stored is void
  std::vector<std::span<const float>> logits;  // num_logits rows of vocab_size
  std::vector<SampledToken> tokens;            // sampled: 1 … num_logits of them
  // The layer that it is before, num_layers if it went through all. A chunk that did not has
  // neither logits nor tokens.
  uint32_t next_layer = 0;
  // query_only: the stored K/V is not what it should be. Logits are given all the same, unless the
  // status says that what is stored made them non-finite.
  bool stored_differs = false;
};

struct ExecutorInfo {
  uint32_t vocab_size;
  uint32_t max_positions;    // a sequence's length
  uint32_t max_step_tokens;  // of all slices together
  std::vector<kv::GroupSpec> groups;
  size_t weight_bytes;
  size_t scratch_bytes;
  uint32_t num_layers = 1;
  uint32_t max_carried_tokens = 0;  // of a chunk; 0: there are none
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorInfo& info() const = 0;

  // One output per slice, in order. Errors: kInvalidArgument for a plan that breaks the limits of
  // info(), kOutOfMemory for its logits; nothing was computed then.
  virtual Result<std::span<const SliceOutput>> Execute(const StepPlan& plan) = 0;
};

}  // namespace kvern::engine
