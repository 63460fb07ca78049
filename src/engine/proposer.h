// Proposer: guesses how sequences go on, cheaply, so that one step can verify several tokens.
//
// Guesses never change what is said, only how fast (rule G6). Rows: engine/spec/table.cc.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvern/ids.h"

namespace kvern::engine {

// Names a sequence for as long as it lives.
enum class SequenceKey : uint64_t {};

// One sequence of a batch.
struct DraftRequest {
  SequenceKey key;
  std::span<const TokenId> tokens;  // prompt and completion so far; only ever grows for one key
  size_t max_draft;                 // tokens wanted at most; ≥ 1
  std::vector<TokenId>* draft;      // filled: 0 … max_draft tokens that may follow; empty before
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  virtual void Propose(std::span<const DraftRequest> batch) = 0;

  // The sequence has ended, or stopped for a while: what is kept of it may go.
  virtual void Forget(SequenceKey key) = 0;
};

}  // namespace kvern::engine
