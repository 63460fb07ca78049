// Attention of the default model's shape, as a forward pass runs it: decode streams K/V from
// memory, prefill computes on K/V that are in cache.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cli/bench_kernels.h"
#include "compute/attention.h"
#include "compute/kv_dtype.h"
#include "compute/kv_layout.h"
#include "model/attend.h"
#include "model/attention_plan.h"
#include "model/forward.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kHeads = 9;
constexpr uint32_t kKvHeads = 3;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kMaxContext = 8192;
constexpr uint32_t kDecodeContexts[] = {2048, 8192};
constexpr uint32_t kPrefillLengths[] = {512, 2048};
constexpr size_t kKvBytes = size_t{96} << 20;  // that a decode reads, at least
constexpr size_t kStride = size_t{kHeads} * kHeadDim;

// As many layers as make kKvBytes.
compute::KvLayout MakeLayout(compute::KvDtype dtype) {
  compute::KvLayout layout = {.num_layers = 1,
                              .num_kv_heads = kKvHeads,
                              .head_dim = kHeadDim,
                              .k_dtype = dtype,
                              .v_dtype = dtype};
  layout.num_layers = static_cast<uint32_t>(kKvBytes / (layout.token_bytes() * kMaxContext) + 1);
  return layout;
}

class AttentionRun {
 public:
  AttentionRun(const compute::Isa* isa, const compute::KvLayout& layout)
      : kernels_(*isa->attention), layout_(layout) {}

  Status Load(size_t max_threads);

  // One new token in every layer, of each of several sequences that together fill kMaxContext, one
  // sequence after the other.
  void Decode(ThreadTeam& team, uint32_t context) {
    for (uint32_t first = 0; first < kMaxContext; first += context) {
      Plan({.tokens = std::span(tokens_).first(1),
            .first_position = context - 1,
            .view = {blocks_.data() + first / kBlockTokens, context / kBlockTokens},
            .num_logits = 0},
           team);
      Attend(team, layout_.num_layers);
    }
  }

  // All tokens of a prompt in one layer.
  void Prefill(ThreadTeam& team, uint32_t num_tokens) {
    Plan({.tokens = std::span(tokens_).first(num_tokens),
          .first_position = 0,
          .view = {blocks_.data(), num_tokens / kBlockTokens},
          .num_logits = 0},
         team);
    Attend(team, 1);
  }

 private:
  void Plan(const model::ForwardSlice& slice, const ThreadTeam& team);
  void Attend(ThreadTeam& team, uint32_t num_layers);
  void AttendLayer(ThreadTeam& team, size_t thread, const model::AttentionTask& task);

  const compute::AttentionKernels& kernels_;
  const compute::KvLayout layout_;
  AlignedBuffer memory_;
  std::vector<std::byte*> blocks_;
  std::vector<TokenId> tokens_;  // only their number counts
  std::vector<float> queries_, out_, slots_;
  std::vector<model::TileAttention> threads_;
  model::ForwardSlice slice_;
  model::ForwardBatch batch_;
  model::AttentionPlan plan_;
};

Status AttentionRun::Load(size_t max_threads) {
  SplitMix64 random(kKernelSeed);
  const auto number = [&] { return static_cast<float>(random.Uniform() * 2 - 1); };
  const size_t num_blocks = kMaxContext / kBlockTokens;
  KVERN_ASSIGN_OR_RETURN(memory_, AlignedBuffer::Create(num_blocks * layout_.block_bytes()));
  // One page of random rows, again and again.
  std::vector<float> row(layout_.v_dim());
  for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
    for (float& value : row) value = number();
    kernels_.Of(layout_.k_dtype).store_k(row.data(), kHeadDim, slot, memory_.data());
    kernels_.Of(layout_.v_dtype)
        .store_v(row.data(), kHeadDim, slot, memory_.data() + layout_.k_plane_bytes());
  }
  for (size_t at = layout_.page_bytes(); at < memory_.bytes(); at += layout_.page_bytes()) {
    std::memcpy(memory_.data() + at, memory_.data(), layout_.page_bytes());
  }
  for (size_t i = 0; i < num_blocks; ++i) {
    blocks_.push_back(memory_.data() + i * layout_.block_bytes());
  }
  tokens_.resize(*std::ranges::max_element(kPrefillLengths));
  queries_.resize(tokens_.size() * kStride);
  for (float& value : queries_) value = number();
  out_.resize(queries_.size());
  slots_.resize((kMaxContext / kChunkTokens + 1) * kHeads *
                compute::PartialFloats(layout_.v_dim()));
  for (size_t i = 0; i < max_threads; ++i) threads_.emplace_back(&kernels_, layout_, kHeads);
  return {};
}

void AttentionRun::Plan(const model::ForwardSlice& slice, const ThreadTeam& team) {
  slice_ = slice;
  batch_ = {.slices = {&slice_, 1}, .shared = {}};
  const size_t max_slots = slots_.size() / compute::PartialFloats(layout_.v_dim());
  model::PlanAttention(batch_, threads_.front().ShapeOf(team.size(), max_slots), plan_);
}

void AttentionRun::Attend(ThreadTeam& team, uint32_t num_layers) {
  team.Run([&](size_t thread) {
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
      AttendLayer(team, thread,
                  {.batch = &batch_,
                   .plan = &plan_,
                   .layer = layer,
                   .queries = queries_.data(),
                   .out = out_.data(),
                   .stride = kStride,
                   .slots = slots_.data()});
    }
  });
}

void AttentionRun::AttendLayer(ThreadTeam& team, size_t thread, const model::AttentionTask& task) {
  threads_[thread].RunShare(task, thread);
  team.Barrier();
  const auto [begin, end] = team.Share(slice_.tokens.size(), thread);
  for (size_t row = begin; row < end; ++row) {
    const model::QueryTile& tile = plan_.tiles[plan_.tile_of_row[row]];
    if (tile.num_merged_units == tile.num_units) continue;
    threads_[thread].FoldRow(task, threads_[tile.owner], static_cast<uint32_t>(row),
                             &out_[row * kStride]);
  }
  team.Barrier();
}

KernelGroup MakeGroup(const compute::Isa& isa, const compute::KvDtypeTraits& dtype) {
  const compute::KvLayout layout = MakeLayout(dtype.dtype);
  const auto data = std::make_shared<AttentionRun>(&isa, layout);
  KernelGroup group;
  group.load = [data](ThreadTeam& team) { return data->Load(team.size()); };
  const std::string type(dtype.name);
  for (const uint32_t context : kDecodeContexts) {
    group.cases.push_back(
        {.kernel = "attention decode",
         .type = type,
         .shape = fmt::format("{} tokens", context),
         .limit = Limit::kRead,
         .work = static_cast<double>(layout.token_bytes()) * kMaxContext,
         .run = [data, context](ThreadTeam& team) { data->Decode(team, context); }});
  }
  for (const uint32_t length : kPrefillLengths) {
    const double pairs = 0.5 * length * (length + 1.0) * kHeads;
    group.cases.push_back(
        {.kernel = "attention prefill",
         .type = type,
         .shape = fmt::format("{} tokens", length),
         .limit = Limit::kFma,
         .work = pairs * 2 * 2 * kHeadDim,  // scores and outputs
         .run = [data, length](ThreadTeam& team) { data->Prefill(team, length); }});
  }
  return group;
}

}  // namespace

std::vector<KernelGroup> AttentionGroups(const compute::Isa& isa) {
  std::vector<KernelGroup> groups;
  for (const compute::KvDtypeTraits& dtype : compute::KvDtypes()) {
    groups.push_back(MakeGroup(isa, dtype));
  }
  return groups;
}

}  // namespace kvern::cli
