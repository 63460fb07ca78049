// Scheduler: prefill beside decoding, in chunks, and in those that are left between layers.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"
#include "kvern/paged_view.h"

namespace kvern::engine {
namespace {

// A prefill that has to leave time for others goes on by at least so many tokens a step. Deep in a
// long prompt a token takes milliseconds, so more would miss the target.
constexpr size_t kMinTokens = 1;

// What there is room for should be this many layers of a chunk.
constexpr double kFineLayers = 6;

}  // namespace

void Scheduler::PlanPrefills() {
  if (in_chunk_ != nullptr) GoOnWithChunk();
  for (Sequence* const sequence : order_) {
    if (has_chunk_) return;
    if (sequence->phase != Phase::kRunning || sequence->is_decoding()) continue;
    if (tokens_left_ == 0) {
      is_queue_bound_ = true;
      return;
    }
    PlanPrefill(*sequence);
  }
}

Scheduler::Prefill Scheduler::PrefillOf(size_t position, size_t num_missing) const {
  if (has_chunk_) return {};
  const size_t most = std::min(num_missing, tokens_left_);
  if (!is_timed() || max_slices_) return {most};
  const size_t within = cost_.TokensWithin(TargetUs(), work_, position, most);
  size_t chunk = std::min(most, max_chunk_tokens_);
  if (within >= chunk && within > 0) return {within};
  if (has_prefill_) return {};
  // The first prefill of a step goes on whatever the target. Few tokens would read K/V and weights
  // for too little: more of them take several steps.
  if (chunk < 2) return {std::max(within, std::min(most, kMinTokens))};
  const double room_us = aim_.share() * TargetUs() - cost_.ExpectedUs(work_);
  while (chunk > kBlockTokens && kFineLayers * LayerUs(position, chunk) > room_us) {
    chunk = std::max<size_t>(chunk / 2, kBlockTokens);
  }
  return {chunk, /*is_chunk=*/true};
}

bool Scheduler::PlanPrefill(Sequence& sequence) {
  Prefill prefill = PrefillOf(sequence.num_computed(), sequence.num_missing());
  const bool had_turn = prefill.num_tokens > 0;
  while (prefill.num_tokens > 0 && !MakeRoom(sequence, prefill.num_tokens)) {
    prefill.num_tokens /= 2;
    prefill.is_chunk &= prefill.num_tokens > 1;
  }
  if (prefill.num_tokens == 0) {
    if (had_turn) FailIfAlone(sequence);
    return false;
  }
  AddSlice(sequence, prefill.num_tokens, 0, prefill.is_chunk);
  has_prefill_ = true;
  return true;
}

// Its blocks are there.
void Scheduler::GoOnWithChunk() {
  Sequence& sequence = *in_chunk_;
  Plan({.sequence = &sequence,
        .first = sequence.num_computed(),
        .num_tokens = sequence.chunk_tokens,
        .is_chunk = true});
  has_prefill_ = true;
}

// As the executor wants it, and until when.
void Scheduler::SetPace() {
  const auto found = std::ranges::find_if(slices_, &ScheduledSlice::is_chunk);
  if (found == slices_.end()) return;
  std::rotate(found, found + 1, slices_.end());
  if (!is_timed()) return;
  const ScheduledSlice& chunk = slices_.back();
  const auto until_us = now_us_ + static_cast<int64_t>(aim_.share() * TargetUs());
  std::optional<int64_t> layer_us;
  // It goes on at least every other step.
  if (!was_chunk_idle_) layer_us = static_cast<int64_t>(LayerUs(chunk.first, chunk.num_tokens));
  pace_.emplace(&clock_, until_us, layer_us);
}

// How far the step went with a chunk; and how long that took.
int64_t Scheduler::ChunkTold(ScheduledSlice& slice, uint32_t next_layer) {
  constexpr double kMemory = 0.8;
  Sequence& sequence = *slice.sequence;
  const uint32_t num_computed = next_layer - sequence.chunk_layers;
  slice.work = slice.work * num_computed / (num_layers_ - sequence.chunk_layers);
  was_chunk_idle_ = num_computed == 0;
  sequence.chunk_layers = next_layer;
  slice.goes_on = next_layer < num_layers_;
  if (!slice.goes_on) DropChunk(sequence);
  if (!pace_ || !pace_->part_us()) return 0;
  const int64_t chunk_us = *pace_->part_us() * num_computed;
  const double rate_us = static_cast<double>(chunk_us) / slice.work;
  chunk_rate_us_ =
      chunk_rate_us_ > 0 ? kMemory * chunk_rate_us_ + (1 - kMemory) * rate_us : rate_us;
  return chunk_us;
}

// Of a chunk, as far as is known.
double Scheduler::LayerUs(size_t position, size_t num_tokens) const {
  const double rate_us = chunk_rate_us_ > 0 ? chunk_rate_us_ : cost_.rate_us();
  return rate_us * WorkOf(position, num_tokens) / num_layers_;
}

// What it computed of its chunk is not to be gone on with.
void Scheduler::DropChunk(Sequence& sequence) {
  sequence.chunk_tokens = 0;
  sequence.chunk_layers = 0;
  if (in_chunk_ == &sequence) in_chunk_ = nullptr;
}

}  // namespace kvern::engine
