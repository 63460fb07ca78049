// Sequence: one line of generation, and LiveRequest: the request that it belongs to.
//
// Plain state, changed by the scheduler (phase, blocks, waiting) and the core (tokens, text,
// report). A request owns its sequences; both have fixed addresses while they live.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/draft_length.h"
#include "engine/proposer.h"
#include "engine/reply_text.h"
#include "kvern/engine.h"
#include "kvern/kv.h"

namespace kvern::engine {

enum class Phase {
  kHeld,           // a later completion: begins with the blocks of completion 0
  kWaiting,        // for its turn, or memory
  kWaitingPrefix,  // for what another sequence computes
  kLoading,        // from a tier
  kRunning,        // holds blocks
  kFinished,
};

// Whom the engine serves fairly beside others.
struct Tenant {
  double served = 0;    // work, as fair sharing counts it
  size_t num_live = 0;  // requests
};

struct LiveRequest;

struct Sequence {
  Sequence(LiveRequest* owner, uint32_t completion_index, const SpeculationOptions& speculation,
           const text::Tokenizer* tokenizer);

  LiveRequest* const request;
  const uint32_t completion;
  Phase phase = Phase::kHeld;
  std::vector<TokenId> tokens;  // prompt and completion so far
  std::vector<TokenId> draft;   // what may follow, in the step in progress
  DraftLength draft_length;
  ReplyText text;

  std::optional<kv::Sequence> kv;    // kRunning
  std::optional<kv::Waiter> waiter;  // kWaitingPrefix, and until the next try
  std::optional<kv::Lease> lease;    // kLoading, and for the rest of the step in which that ends
  bool has_loaded = false;           // what a tier had came, or failed to
  bool was_admitted = false;
  bool is_paused = false;        // its reader is behind
  bool distrusts_cache = false;  // what it found there was wrong: computes everything
  size_t blocked_bytes = 0;      // what was available when it last did not fit; 0: it did
  size_t num_gathered = 0;       // times that room was gathered for it, since it last fitted
  bool lacks_share = false;      // it was its account's share that did not suffice
  bool is_set_aside = false;     // for this step: its account is at its share
  size_t num_found = 0;          // in the cache, when the queue last looked
  uint64_t last_step = 0;        // in which it computed something
  size_t chunk_tokens = 0;       // that have blocks, but are not through all layers …
  uint32_t chunk_layers = 0;     // … only through so many
  size_t num_blocks = 0;         // held, as the report counts them
  int64_t first_token_us = 0, last_token_us = 0;

  SequenceKey key() const;
  size_t num_prompt() const;
  size_t num_new() const { return tokens.size() - num_prompt(); }
  // Tokens without K/V. 0: a full hit, whose last token is computed again.
  size_t num_missing() const { return tokens.size() - num_computed(); }
  size_t num_computed() const { return kv->length() - chunk_tokens; }
  // REQUIRES: kRunning. Whether its next step gives a token whatever its size.
  bool is_decoding() const { return num_missing() <= 1; }
};

struct LiveRequest {
  RequestId id{};
  Request request;
  ReplySink* sink = nullptr;
  kv::NamespaceId ns{};
  std::string account;  // whose quota counts; empty: nobody's
  Tenant* tenant = nullptr;
  int64_t arrival_us = 0;
  std::optional<int64_t> deadline_us;                // of the clock
  size_t max_tokens = 0;                             // of a completion, in effect
  std::vector<std::unique_ptr<Sequence>> sequences;  // by completion
  size_t num_finished = 0;
  bool has_forked = false;  // the prompt is computed; later completions were begun
  bool was_cancelled = false, has_failed = false;
  bool is_broken = false;  // its sink threw: nothing more is told
  size_t num_blocks = 0;   // held by all its sequences
  Report report;

  void Log(LifecycleEvent::Kind kind, int64_t now_us, uint32_t completion, size_t amount) {
    report.events.push_back({kind, now_us - arrival_us, completion, amount});
  }
};

// Who yields to whom: the greater to the less. Waiting makes a priority grow
// by one in each ageing_us, so a difference of priorities is a difference of arrival times, and the
// order of two sequences never changes but by an inherited priority (rule K6).
struct Rank {
  int64_t virtual_arrival_us;
  uint64_t request;
  uint32_t completion;

  auto operator<=>(const Rank&) const = default;  // NOLINT: clang-tidy's mistake
};

inline Sequence::Sequence(LiveRequest* owner, uint32_t completion_index,
                          const SpeculationOptions& speculation, const text::Tokenizer* tokenizer)
    : request(owner),
      completion(completion_index),
      tokens(owner->request.tokens),
      draft_length(speculation.max_draft, speculation.adaptive),
      text(tokenizer, owner->request.stop) {}
inline SequenceKey Sequence::key() const {
  return static_cast<SequenceKey>(static_cast<uint64_t>(request->id) << 16 | completion);
}
inline size_t Sequence::num_prompt() const { return request->request.tokens.size(); }

}  // namespace kvern::engine
