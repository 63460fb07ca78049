#include "cli/bench_attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/rng.h"
#include "compute/attention.h"

namespace kvern::cli {
namespace {

constexpr uint64_t kRowSeed = 1;
constexpr size_t kCheapSlotBytes = size_t{4} << 20;

}  // namespace

AttentionBench::AttentionBench(const AttentionBenchOptions& options)
    : options_(options),
      kernels_(*options.isa->attention),
      stride_(size_t{options.num_heads} * options.layout.head_dim) {}

Result<std::unique_ptr<AttentionBench>> AttentionBench::Create(
    const AttentionBenchOptions& options) {
  std::unique_ptr<AttentionBench> bench(new AttentionBench(options));
  KVERN_RETURN_IF_ERROR(bench->Load());
  return bench;
}

Status AttentionBench::Load() {
  const compute::KvLayout& layout = options_.layout;
  SplitMix64 random(kRowSeed);
  const auto number = [&] { return static_cast<float>(random.Uniform() * 2 - 1); };
  const size_t num_blocks = options_.context / kBlockTokens;
  KVERN_ASSIGN_OR_RETURN(memory_, AlignedBuffer::Create(num_blocks * layout.block_bytes()));
  // One page of random rows, again and again.
  std::vector<float> row(layout.v_dim());
  for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
    for (float& value : row) value = number();
    kernels_.Of(layout.k_dtype).store_k(row.data(), layout.head_dim, slot, memory_.data());
    kernels_.Of(layout.v_dtype)
        .store_v(row.data(), layout.head_dim, slot, memory_.data() + layout.k_plane_bytes());
  }
  for (size_t at = layout.page_bytes(); at < memory_.bytes(); at += layout.page_bytes()) {
    std::memcpy(memory_.data() + at, memory_.data(), layout.page_bytes());
  }
  for (size_t i = 0; i < num_blocks; ++i) {
    blocks_.push_back(memory_.data() + i * layout.block_bytes());
  }
  tokens_.resize(options_.max_rows);
  queries_.resize(tokens_.size() * stride_);
  for (float& value : queries_) value = number();
  out_.resize(queries_.size());
  // As a forward pass has them: see DecoderForward::NumSlots().
  const size_t slot_floats = compute::PartialFloats(layout.v_dim());
  const size_t num_chunks = options_.context / kChunkTokens + 1;
  const size_t tile = num_chunks * layout.num_kv_heads * model::kTileQueries;
  slots_.resize(slot_floats * std::max(num_chunks * options_.num_heads,
                                       std::min(tile, kCheapSlotBytes / 4 / slot_floats)));
  for (size_t i = 0; i < options_.max_threads; ++i) {
    threads_.emplace_back(&kernels_, layout, options_.num_heads);
  }
  members_.resize(options_.max_rows);
  std::iota(members_.begin(), members_.end(), 0u);
  return {};
}

model::ForwardSlice AttentionBench::SliceOf(uint32_t first_block, uint32_t first_position,
                                            uint32_t num_tokens) const {
  const uint32_t end = first_position + num_tokens;
  return {.tokens = std::span(tokens_).first(num_tokens),
          .first_position = first_position,
          .view = {blocks_.data() + first_block, (end + kBlockTokens - 1) / kBlockTokens},
          .num_logits = 0};
}

void AttentionBench::Decode(ThreadTeam& team, uint32_t context) {
  shared_.clear();
  for (uint32_t first = 0; first + context <= options_.context; first += context) {
    slices_ = {SliceOf(first / kBlockTokens, context - 1, 1)};
    Attend(team, options_.layout.num_layers);
  }
}

void AttentionBench::DecodeShared(ThreadTeam& team, uint32_t num_sequences, uint32_t prefix) {
  // The block behind the prefix serves all: only what is read counts.
  slices_.assign(num_sequences, SliceOf(0, prefix, 1));
  shared_ = {
      {.slices = std::span(members_).first(num_sequences), .num_chunks = prefix / kChunkTokens}};
  Attend(team, options_.layout.num_layers);
}

void AttentionBench::Prefill(ThreadTeam& team, uint32_t num_tokens, uint32_t num_layers) {
  shared_.clear();
  slices_ = {SliceOf(0, 0, num_tokens)};
  Attend(team, num_layers);
}

void AttentionBench::Attend(ThreadTeam& team, uint32_t num_layers) {
  batch_ = {.slices = slices_, .shared = shared_};
  const size_t max_slots = slots_.size() / compute::PartialFloats(options_.layout.v_dim());
  model::PlanAttention(batch_, threads_.front().ShapeOf(team.size(), max_slots), plan_);
  team.Run([&](size_t thread) {
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
      AttendLayer(team, thread,
                  {.batch = &batch_,
                   .plan = &plan_,
                   .layer = layer,
                   .queries = queries_.data(),
                   .out = out_.data(),
                   .stride = stride_,
                   .slots = slots_.data()});
    }
  });
}

void AttentionBench::AttendLayer(ThreadTeam& team, size_t thread,
                                 const model::AttentionTask& task) {
  threads_[thread].RunShare(task, thread);
  team.Barrier();
  const auto [begin, end] = team.Share(plan_.tile_of_row.size(), thread);
  for (size_t row = begin; row < end; ++row) {
    const model::QueryTile& tile = plan_.tiles[plan_.tile_of_row[row]];
    if (tile.num_merged_units == tile.num_units) continue;
    threads_[thread].FoldRow(task, threads_[tile.owner], static_cast<uint32_t>(row),
                             &out_[row * stride_]);
  }
  team.Barrier();
}

}  // namespace kvern::cli
