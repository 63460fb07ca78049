// Replays a length trace through one cache strategy under one memory budget, and counts what the
// memory was worth.
//
// The strategies are the library's own (kv/strategy.h); only the bytes are missing (ArenaStore).
// Time goes in steps. In each one, in this order:
//   1. Sequences that have all their tokens free their memory.
//   2. Each sequence held grows by one token, the oldest first. One that is refused memory waits
//      with what it has. If all are refused, the youngest is preempted: it frees everything and
//      goes to the head of the queue.
//   3. If nobody was refused, the head of the queue is admitted, again and again, while there is
//      memory for its context or, after a preemption, for all tokens that it had and one more.
//      Nobody overtakes it. If it is refused although nobody is held, it can never fit: it is
//      dropped.
// So at least the oldest sequence always gets on, and all strategies get the same work by the same
// rules. (Preempting at the first refusal would be no kindness to contiguous regions: the memory
// that the youngest frees seldom touches another hole.)
//
// At the end of each step every byte of the budget is in one of four states:
//   used      rows of tokens
//   internal  allocated, without a row yet: the ends of regions or blocks
//   external  free, yet somebody was refused who wanted no more than that: holes
//   free      the rest: idle, or too little for who wants it
// Means are over the steps up to the last admission.
//
// One thread; a pure function of its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "kv/arena_store.h"
#include "kv/strategy.h"
#include "sim/length_trace.h"

namespace kvern::sim {

// One block_tokens × token_bytes is a multiple of kv::kBlockAlignment, at most kMaxBlocks of them
// fit into the budget, and at least one.
struct FragmentationOptions {
  size_t budget_bytes = 0;  // rounded down to whole blocks
  size_t token_bytes = 0;
  uint32_t block_tokens = kBlockTokens;
  uint32_t max_tokens = 0;  // the context that `static` reserves; longer requests are left out
  std::optional<uint32_t> step_ms;  // requests arrive in time; if none, all wait from the start
  kv::ArenaFit fit = kv::ArenaFit::kFirst;  // of contiguous regions
};

inline constexpr size_t kMaxBlocks = size_t{1} << 26;

struct BudgetShares {
  double used = 0;
  double internal = 0;
  double external = 0;
  double free = 0;

  double Sum() const { return used + internal + external + free; }
};

struct FragmentationResult {
  uint64_t num_steps = 0;
  BudgetShares mean_bytes;         // they sum to the budget
  size_t peak_internal_bytes = 0;  // at the end of a step
  size_t peak_external_bytes = 0;  // most bytes free when a smaller request was refused
  // 1 − (what one sequence could have) / (what is free), where somebody is held and memory is free:
  // 0 where all that is free can serve anyone.
  double mean_fragmentation = 0;

  double mean_held = 0;  // sequences at once
  size_t peak_held = 0;

  uint64_t bytes_copied = 0;
  uint64_t num_refusals = 0;           // of memory, to grow or to be admitted
  uint64_t num_refusals_by_holes = 0;  // of these, with enough bytes free
  uint64_t num_waits = 0;              // refusals to grow: sequences × steps without a new token
  uint64_t num_preemptions = 0;
  uint64_t tokens_recomputed = 0;  // when preempted sequences came back

  size_t num_completed = 0;
  size_t num_too_long = 0;   // beyond max_tokens
  size_t num_never_fit = 0;  // refused memory when nobody else was held
};

// Errors: kOutOfMemory where the system has not enough address space for the budget.
Result<FragmentationResult> ReplayLengths(const LengthTrace& trace, const kv::Strategy& strategy,
                                          const FragmentationOptions& options);

}  // namespace kvern::sim
