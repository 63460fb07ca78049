// Forward: one step of a decoder over a ragged batch of sequences, on a team of threads.
//
// A batch is a list of slices: consecutive new tokens of one sequence, whose earlier K/V lie in the
// blocks of its view. Run() computes the slices' K and V, stores them into those blocks (or, for a
// query-only slice, compares them with what is there), attends, and gives logits where they are
// asked for. What a slice gets depends on its own tokens and blocks
// only: not on the batch, its order, the number of threads or the instruction set (rules N1–N9).
//
// Layers: a slice alone in its batch may go through some layers only, as far as there is time, and
// go on with the next ones in a later batch: a prompt's tokens take little time at once then, and
// still read K/V together.
//
// Shared prefixes: sequences whose leading chunks are the same blocks may be named as a group; all
// their queries then meet each shared chunk in one tile. Bits do not change, only memory traffic.
//
// One thread at a time. Scratch memory is allocated once; scratch_bytes() is exact. Run() allocates
// nothing once it has seen batches of that many slices, tiles and rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/pace.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "kvern/ids.h"
#include "kvern/paged_view.h"
#include "model/model.h"

namespace kvern::model {

struct ForwardSlice {
  std::span<const TokenId> tokens;  // not empty; each below the vocabulary's size
  uint32_t first_position;          // of tokens[0]
  PagedView view;                   // blocks for positions [0, first_position + tokens.size())
  uint32_t num_logits;              // of the last tokens: 0 … tokens.size()
  // One token whose K/V an earlier batch stored: its blocks are read, never written (rule K5).
  bool query_only = false;
  // Behind the first, CanGoOn(), and as if `pace` were given.
  uint32_t first_layer = 0;
  // Where it is given, the slice is the batch's only one, of at most kMaxCarriedTokens tokens. It
  // has begun, and is asked before each further layer; where there is no time, the slice is left
  // there, without logits.
  Pace* pace = nullptr;
};

// Tokens that may be between two layers from one batch to a later one.
inline constexpr uint32_t kMaxCarriedTokens = 256;

// Slices whose blocks of the first `num_chunks` chunks are identical, and whose first positions lie
// behind them.
struct SharedChunks {
  std::span<const uint32_t> slices;  // indices, ascending, each in at most one group
  uint32_t num_chunks;
};

struct ForwardBatch {
  std::span<const ForwardSlice> slices;
  std::span<const SharedChunks> shared;  // optional
};

// What a slice met.
struct ForwardOutcome {
  // A value that is not finite: what the slice stored and its logits mean nothing; those of others
  // are good.
  bool non_finite = false;
  // Of a query-only slice: its K or V, as they would be stored, are not what is stored.
  bool stored_differs = false;
  // That it is before; the number of layers if it went through all.
  uint32_t next_layer = 0;
};

class Forward {
 public:
  // `model`, `team` must outlive it. At most `max_tokens` tokens a step.
  static Result<std::unique_ptr<Forward>> Create(const Model* model, const compute::Isa* isa,
                                                 ThreadTeam* team, const compute::KvLayout& layout,
                                                 uint32_t max_tokens);
  virtual ~Forward() = default;

  // Writes the logits of all slices in order, [Σ num_logits][logits_stride()], to `logits`; what
  // lies beyond the vocabulary in a row means nothing. Returns one outcome per slice, valid until
  // the next call. REQUIRES: at most max_tokens tokens in all.
  virtual std::span<const ForwardOutcome> Run(const ForwardBatch& batch,
                                              std::span<float> logits) = 0;

  // Whether the last batch with a pace left the tokens of `slice` before its first layer.
  virtual bool CanGoOn(const ForwardSlice& slice) const = 0;

  // The vocabulary padded to whole row tiles.
  virtual size_t logits_stride() const = 0;

  virtual size_t scratch_bytes() const = 0;
};

}  // namespace kvern::model
