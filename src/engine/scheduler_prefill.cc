// Scheduler: prefill beside decoding, in chunks, and chunks in layers.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"
#include "kvern/paged_view.h"

namespace kvern::engine {
namespace {

// A prefill that has to leave time for others goes on by at least so many tokens a step. Deep in a
// long prompt a token takes milliseconds, so more would miss the target.
constexpr size_t kMinChunk = 1;

// A chunk of fewer tokens reads K/V and weights for too few.
constexpr size_t kGoodChunk = 32;
// What there is room for should be this many layers of it.
constexpr double kFineLayers = 4;

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

Scheduler::PrefillChunk Scheduler::ChunkOf(size_t position, size_t num_missing) const {
  if (has_chunk_) return {0, num_layers_};
  const size_t most = std::min(num_missing, tokens_left_);
  const bool others_decode = !slices_.empty();
  if (options_.target_token_us == 0 || !others_decode || max_slices_) return {most, num_layers_};
  const size_t within = cost_.TokensWithin(TargetUs(), work_, position, most);
  size_t few = std::min({most, kGoodChunk, max_chunk_tokens_});
  if (within >= few && within > 0) return {within, num_layers_};
  if (has_prefill_) return {0, num_layers_};
  // The first prefill of a step goes on whatever the target.
  if (few < 2) return {std::max(within, std::min(most, kMinChunk)), num_layers_};
  const auto layer_work = [&] { return WorkOf(position, few) / num_layers_; };
  const double room = cost_.WorkWithin(TargetUs()) - work_;
  while (few > kBlockTokens && kFineLayers * layer_work() > room) few /= 2;
  return {few, LayersWithin(layer_work(), num_layers_)};
}

// Of `num_left` layers, so that the steps for them are alike.
uint32_t Scheduler::LayersWithin(double layer_work, uint32_t num_left) const {
  const double most = (cost_.WorkWithin(TargetUs()) - work_) / layer_work;
  const auto num_fitting = static_cast<uint32_t>(std::clamp<double>(most, 1, num_left));
  const uint32_t num_steps = (num_left + num_fitting - 1) / num_fitting;
  return (num_left + num_steps - 1) / num_steps;
}

bool Scheduler::PlanPrefill(Sequence& sequence) {
  PrefillChunk chunk = ChunkOf(sequence.num_computed(), sequence.num_missing());
  const bool had_turn = chunk.num_tokens > 0;
  while (chunk.num_tokens > 0 && !MakeRoom(sequence, chunk.num_tokens)) chunk.num_tokens /= 2;
  if (chunk.num_tokens == 0) {
    if (had_turn) FailIfAlone(sequence);
    return false;
  }
  AddSlice(sequence, chunk.num_tokens, 0, chunk.end_layer);
  has_prefill_ = true;
  return true;
}

// Its blocks are there.
void Scheduler::GoOnWithChunk() {
  Sequence& sequence = *in_chunk_;
  ScheduledSlice slice = {.sequence = &sequence,
                          .first = sequence.num_computed(),
                          .num_tokens = sequence.chunk_tokens,
                          .first_layer = sequence.chunk_layers,
                          .end_layer = num_layers_};
  const bool others_decode = !slices_.empty();
  if (options_.target_token_us > 0 && others_decode) {
    const double layer_work = WorkOf(slice.first, slice.num_tokens) / num_layers_;
    slice.end_layer = slice.first_layer + LayersWithin(layer_work, num_layers_ - slice.first_layer);
  }
  Plan(slice);
  has_prefill_ = true;
}

// What it computed of its chunk is not to be gone on with.
void Scheduler::DropChunk(Sequence& sequence) {
  sequence.chunk_tokens = 0;
  sequence.chunk_layers = 0;
  if (in_chunk_ == &sequence) in_chunk_ = nullptr;
}

// As the executor wants it.
void Scheduler::PutChunkLast() {
  if (!has_chunk_) return;
  const auto chunk = std::ranges::find_if(slices_, &ScheduledSlice::is_part);
  if (chunk != slices_.end()) std::rotate(chunk, chunk + 1, slices_.end());
}

}  // namespace kvern::engine
