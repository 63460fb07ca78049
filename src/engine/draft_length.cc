#include "engine/draft_length.h"

#include <algorithm>

#include "base/check.h"

namespace kvern::engine {
namespace {

// Hopeful but little sure: a sequence's own first verdicts outweigh it soon.
constexpr float kFirstAcceptance = 0.75f;
constexpr float kFirstVerdicts = 2;
// Texts change: only about so many of the last verdicts count, and fewer once drafting has stopped,
// so that a few successful probes suffice to begin again.
constexpr float kMaxVerdicts = 32;
constexpr float kMaxStaleVerdicts = 3;

// Below this a gain is lost in what the costs leave out.
constexpr double kLeastGain = 1.02;

constexpr uint16_t kFirstPause = 16;
constexpr uint16_t kMaxPause = 1024;

// The least of the first few: the very first ones have prompts to read.
constexpr uint32_t kFirstCosts = 4;
constexpr double kCostWeight = 1.0 / 8;
constexpr double kTrustKept = 1 - 1.0 / 256;  // a step

struct Choice {
  size_t length = 0;
  double gain = 1;  // tokens per cost, over those of a plain step
};

// Of drafts of 0 … max_draft tokens, each right with `acceptance` if all before it are.
Choice Best(size_t max_draft, double acceptance, const DraftCosts& costs) {
  double step_us = costs.base_us / static_cast<double>(std::max<size_t>(costs.num_sequences, 1)) +
                   costs.per_token_us;
  if (step_us <= 0 && costs.draft_token_us <= 0) step_us = 1;
  Choice best;
  double all_right = 1;
  double tokens = 1;
  for (size_t length = 1; length <= max_draft; ++length) {
    all_right *= acceptance;
    tokens += all_right;
    const double more_us =
        static_cast<double>(length) * (costs.per_token_us + costs.draft_token_us);
    const double gain = tokens * step_us / (step_us + more_us);
    if (gain > best.gain) best = {length, gain};
  }
  return best.gain < kLeastGain ? Choice() : best;
}

}  // namespace

DraftLength::DraftLength(size_t max_draft, bool adaptive)
    : max_draft_(static_cast<uint32_t>(max_draft)),
      adaptive_(adaptive),
      pause_(kFirstPause),
      acceptance_(kFirstAcceptance),
      num_verdicts_(kFirstVerdicts) {}

size_t DraftLength::Next(const DraftCosts& costs) {
  if (!adaptive_) return max_draft_;
  const size_t length = Best(max_draft_, acceptance_, costs).length;
  if (length > 0) {
    is_off_ = false;
    pause_ = kFirstPause;
    plain_tokens_ = 0;
    return length;
  }
  is_off_ = true;
  const bool is_worth_probing = Best(max_draft_, 1, costs).length > 0;
  if (is_worth_probing && plain_tokens_ >= pause_) return 1;
  ++plain_tokens_;
  return 0;
}

void DraftLength::Told(size_t drafted, size_t accepted) {
  CHECK(accepted <= drafted);
  if (drafted == 0) return;
  if (is_off_) num_verdicts_ = std::min(num_verdicts_, kMaxStaleVerdicts);
  for (size_t i = 0; i < accepted; ++i) Learn(true);
  if (accepted < drafted) Learn(false);
  // After a probe that succeeds the next follows at once.
  if (!is_off_ || accepted == drafted) return;
  plain_tokens_ = 0;
  pause_ = std::min<uint16_t>(pause_ * 2, kMaxPause);
}

void DraftLength::Learn(bool accepted) {
  num_verdicts_ = std::min(num_verdicts_ + 1, kMaxVerdicts);
  acceptance_ += ((accepted ? 1.0f : 0.0f) - acceptance_) / num_verdicts_;
}

void DraftTokenCost::Told(size_t num_drafted, double spent_us) {
  if (num_drafted == 0) return;
  const double us = spent_us / static_cast<double>(num_drafted);
  const bool is_stale = trust_ < 1;
  trust_ = 1;
  if (num_told_ < kFirstCosts) {
    us_ = num_told_ == 0 ? us : std::min(us_, us);
    ++num_told_;
  } else if (is_stale && us < us_) {
    us_ = us;
  } else {
    us_ += std::min(us - us_, us_) * kCostWeight;
  }
}

void DraftTokenCost::NotAsked() { trust_ *= kTrustKept; }

double DraftTokenCost::us() const { return num_told_ < kFirstCosts ? 0 : us_ * trust_; }

}  // namespace kvern::engine
