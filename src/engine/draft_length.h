// DraftLength: how many tokens to draft for one sequence in the next step (rule G6).
//
// A draft pays where the tokens that it is expected to bring cost less than those of plain steps.
// How many are accepted is estimated from the last verdicts; what they cost, the caller says. Where
// drafting does not pay because too little was accepted, one token is drafted now and then, ever
// more rarely while it is rejected, so that a text that becomes easy is noticed. Where it would not
// pay even if everything were accepted, nothing is tried.
//
// A pure function of what it was told: no clock, no chance. Not thread-safe; cheap to copy. Times
// are in microseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvern::engine {

// What a step of `num_sequences` sequences costs. Measured, estimated, or all zero if not known: a
// step then counts the same however many tokens it has.
struct DraftCosts {
  double base_us = 0;         // of a step, shared by its sequences
  double per_token_us = 0;    // of computing a token, drafted or not
  double draft_token_us = 0;  // of guessing one
  size_t num_sequences = 1;   // that decode in the step
};

class DraftLength {
 public:
  // Not adaptive: always `max_draft`.
  DraftLength(size_t max_draft, bool adaptive);

  // For a step that brings at least one token: 0 … max_draft. O(max_draft).
  size_t Next(const DraftCosts& costs);

  // The verdict on a draft that Next() asked for: its first `accepted` tokens were right. Drafts
  // that found nothing to propose say nothing. REQUIRES: accepted ≤ drafted.
  void Told(size_t drafted, size_t accepted);

  // The estimated chance that a drafted token is right if all before it are.
  double acceptance() const { return acceptance_; }

 private:
  void Learn(bool accepted);

  uint32_t max_draft_;
  bool adaptive_;
  bool is_off_ = false;        // drafting did not pay when last asked
  uint16_t pause_;             // plain tokens before the next probe
  uint32_t plain_tokens_ = 0;  // since drafting stopped to pay, or the last probe
  float acceptance_;
  float num_verdicts_;  // that the estimate counts as
};
static_assert(sizeof(DraftLength) <= 32);

// What guessing a token costs, for DraftCosts::draft_token_us: learned from how long proposers
// took.
//
// Time in which a proposer read new texts and drafted nothing is no token's cost; where it drafted
// for others meanwhile, the estimate gives in slowly. It wears off while nobody is asked: what was
// too expensive once is tried again, so rarely that it costs two per cent at most.
class DraftTokenCost {
 public:
  // A proposer took `spent_us` to draft `num_drafted` tokens.
  void Told(size_t num_drafted, double spent_us);

  // A step in which no proposer was asked.
  void NotAsked();

  double us() const;  // 0 until it is known

 private:
  double us_ = 0;
  double trust_ = 1;  // of it, while it is not confirmed
  uint32_t num_told_ = 0;
};

}  // namespace kvern::engine
