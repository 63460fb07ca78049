// A draft model as proposer: a smaller model of the same vocabulary guesses, greedily, how texts go
// on.
//
// It has an executor, a KV cache and a memory budget of its own, and a sequence there for each
// sequence that it drafts for. A call brings them up to date, all in one step of its executor and
// so within its max_step_tokens: what does not fit goes on in the next call, and nothing is
// proposed for it until then, so that a long prompt never freezes the others. Then it guesses a
// token for every sequence in each further step. What the target rejected is taken back by
// kv::Sequence::Truncate. Prefixes that its cache has are not computed again.
//
// Where its memory has no room for a sequence, the state of sequences that are not in the call
// goes, the longest unused first; failing that, nothing is proposed. For one whose computation
// failed nothing is proposed until Forget().
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/proposer.h"
#include "kvern/kv.h"

namespace kvern::text {
class Tokenizer;
}

namespace kvern::engine {

// The model that verifies.
struct TargetModel {
  uint32_t vocab_size = 0;                     // logits of a position
  const text::Tokenizer* tokenizer = nullptr;  // none: token texts are not compared
};

// An opened draft model.
struct DraftModel {
  std::shared_ptr<void> owner;  // of what follows; may be empty if that outlives the proposer
  Executor* executor = nullptr;
  kv::KvCache* cache = nullptr;                // used by nobody else
  kv::NamespaceId ns{};                        // of its texts
  const text::Tokenizer* tokenizer = nullptr;  // none: token texts are not compared
};

// Errors: kInvalidArgument where the vocabularies differ, with the first difference.
Result<std::unique_ptr<Proposer>> MakeDraftProposer(DraftModel draft, const TargetModel& target);

}  // namespace kvern::engine
