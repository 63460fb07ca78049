#include "model/forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/fp_env.h"
#include "model/activations.h"
#include "model/attend.h"
#include "model/attention_plan.h"

namespace kvern::model {
namespace {

using compute::kRowTile;
using compute::PackedMatrix;

// Up to this many tokens each thread packs all activations for itself: cheaper than a barrier.
constexpr uint32_t kPrivateTokens = 4;

// Floats of a thread for columns that it computes and reads at once: they stay in its L2 cache.
// Columns of many tokens are a whole row apart elsewhere, which no cache holds well.
constexpr uint32_t kColumnFloats = 32768;
// Columns that activations quantise together.
constexpr uint32_t kBlockColumns = 32, kBlockTiles = kBlockColumns / kRowTile;

constexpr uint32_t Padded(uint32_t width) { return (width + kRowTile - 1) / kRowTile * kRowTile; }

// A matrix of floats, one row a token.
struct FloatRows {
  float* data = nullptr;
  size_t stride = 0;
  float* row(uint32_t token) const { return data + token * stride; }
};

// All forms that a model's weights read.
InputForms FormsOf(const Weights& weights) {
  InputForms forms;
  forms.Add(weights.head());
  for (const LayerWeights& layer : weights.layers) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down}) {
      forms.Add(*matrix);
    }
  }
  return forms;
}

struct ThreadScratch {
  ActivationBuffer activations;  // of kPrivateTokens
  std::vector<float> row;
  AlignedBuffer columns;  // two of ColumnFloats()
  AlignedBuffer page;     // K and V plane of what is computed only to be compared
  TileAttention attention;
};

class DecoderForward final : public Forward {
 public:
  DecoderForward(const Model* model, const compute::Isa* isa, ThreadTeam* team,
                 const compute::KvLayout& layout, uint32_t max_tokens)
      : model_(*model),
        config_(model->config()),
        isa_(*isa),
        team_(*team),
        layout_(layout),
        max_tokens_(max_tokens),
        query_scale_(
            static_cast<float>(std::numbers::log2e / std::sqrt(double(config_.head_dim)))) {}

  Status Allocate();
  std::span<const ForwardOutcome> Run(const ForwardBatch& batch, std::span<float> logits) override;
  bool CanGoOn(const ForwardSlice& slice) const override;
  size_t logits_stride() const override { return Padded(config_.vocab_size); }
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  struct Row {
    TokenId token;
    uint32_t position;
    uint32_t slice;
  };
  // Whose query, key or value was projected, and by which thread.
  struct ProjectedHead {
    size_t thread;
    uint32_t token;
    uint32_t layer;
    uint32_t head;
  };
  // The tokens that the last chunk left between two layers.
  struct Carried {
    const std::byte* block;  // of the first one
    uint32_t first_position;
    uint32_t num_tokens;  // 0: none
    uint32_t next_layer;
  };

  size_t NumSlots() const;
  size_t SlotBytes() const { return compute::PartialFloats(layout_.v_dim()) * sizeof(float); }

  void BeginBatch(const ForwardBatch& batch);
  void AddRows(uint32_t index);
  uint32_t first_layer() const { return chunk_ != nullptr ? chunk_->first_layer : 0; }
  bool HasTimeFor(uint32_t layer) const;
  void KeepCarried();
  void RunThread(size_t thread, std::span<float> logits);
  void Embed(size_t thread);
  void RunLayer(size_t thread, uint32_t index);
  void ProjectHeads(size_t thread, uint32_t index, const Activations& input);
  void PrepareQuery(const ProjectedHead& at, float* q);
  void StoreKey(const ProjectedHead& at, float* k);
  void StoreValue(const ProjectedHead& at, float* v);
  void NormAndRotate(float* head, const std::vector<float>& norm, uint32_t position) const;
  const ForwardSlice& SliceOf(const Row& row) const { return batch_.slices[row.slice]; }
  std::byte* BlockOf(const Row& row) const;
  AttentionTask TaskOfLayer(uint32_t index) const;
  void Attend(size_t thread, uint32_t index);
  const float* AttentionRow(size_t thread, uint32_t index, uint32_t token, float* scratch);
  // The fewest heads that fill whole row tiles.
  uint32_t UnitHeads() const { return kRowTile / std::gcd(kRowTile, config_.head_dim); }
  // At least a block of columns, and a unit of heads, of all tokens.
  size_t ColumnFloats() const {
    const size_t widest = std::max(kBlockColumns, UnitHeads() * config_.head_dim);
    return std::max(size_t{kColumnFloats}, widest * max_tokens_);
  }
  template <typename Use>
  void ForColumns(uint32_t num_tokens, uint32_t unit_tiles, uint32_t first, uint32_t end,
                  Use use) const;
  void ProjectGateUp(size_t thread, const LayerWeights& layer, const Activations& input,
                     const Activations& output);
  void AddProjection(size_t thread, const PackedMatrix& weights, const Activations& input);
  void ComputeLogits(size_t thread, std::span<float> logits);

  template <typename RowSource>
  Activations Pack(size_t thread, std::span<const uint32_t> tokens,
                   std::initializer_list<const PackedMatrix*> readers, RowSource source);
  void Fail(uint32_t slice) { failed_[slice].store(true, std::memory_order_relaxed); }
  void Differ(uint32_t slice) { differs_[slice].store(true, std::memory_order_relaxed); }

  const Model& model_;
  const ModelConfig& config_;
  const compute::Isa& isa_;
  ThreadTeam& team_;
  const compute::KvLayout layout_;
  const uint32_t max_tokens_;
  const float query_scale_;  // log2(e) / sqrt(head_dim), rounded once (rule N4)

  std::vector<AlignedBuffer> buffers_;
  FloatRows x_, q_, attention_;
  FloatRows carried_x_;
  ActivationBuffer activations_;
  ActivationBuffer ffn_activations_;  // of what goes down
  float* slots_ = nullptr;            // partials of cut attention tiles
  std::vector<ThreadScratch> scratch_;
  size_t scratch_bytes_ = 0;

  // Of the batch in progress.
  ForwardBatch batch_;
  std::vector<Row> rows_;
  std::vector<uint32_t> all_rows_;    // 0, 1, …
  std::vector<uint32_t> logit_rows_;  // rows whose logits are wanted
  AttentionPlan plan_;
  const ForwardSlice* chunk_ = nullptr;  // the slice that may be left between layers
  uint32_t end_layer_ = 0;               // thread 0 lowers it while the others wait
  Carried carried_ = {};
  // By slice.
  std::vector<std::atomic<bool>> failed_;
  std::vector<std::atomic<bool>> differs_;
  std::vector<ForwardOutcome> outcomes_;
};

Status DecoderForward::Allocate() {
  const uint32_t q_width = config_.num_heads * config_.head_dim;
  struct Size {
    FloatRows* rows;
    uint32_t count;
    uint32_t width;
  };
  const Size sizes[] = {{&x_, max_tokens_, config_.hidden},
                        {&carried_x_, std::min(max_tokens_, kMaxCarriedTokens), config_.hidden},
                        {&q_, max_tokens_, q_width},
                        {&attention_, max_tokens_, q_width}};
  for (const auto& [rows, count, width] : sizes) {
    const size_t bytes = size_t{count} * Padded(width) * sizeof(float);
    KVERN_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Create(bytes));
    *rows = {buffer.as<float>(), Padded(width)};
    scratch_bytes_ += buffer.bytes();
    buffers_.push_back(std::move(buffer));
  }
  const InputForms forms = FormsOf(model_.weights());
  const uint32_t widest = std::max(config_.hidden, q_width);
  KVERN_ASSIGN_OR_RETURN(activations_, ActivationBuffer::Create(max_tokens_, widest, forms));
  KVERN_ASSIGN_OR_RETURN(ffn_activations_,
                         ActivationBuffer::Create(max_tokens_, config_.ffn_hidden, forms));
  scratch_bytes_ += activations_.bytes() + ffn_activations_.bytes();
  for (size_t thread = 0; thread < team_.size(); ++thread) {
    KVERN_ASSIGN_OR_RETURN(auto own, ActivationBuffer::Create(kPrivateTokens, widest, forms));
    KVERN_ASSIGN_OR_RETURN(auto columns, AlignedBuffer::Create(2 * ColumnFloats() * sizeof(float)));
    KVERN_ASSIGN_OR_RETURN(auto page, AlignedBuffer::Create(layout_.page_bytes()));
    scratch_.push_back({std::move(own), std::vector<float>(widest), std::move(columns),
                        std::move(page),
                        TileAttention(isa_.attention, layout_, config_.num_heads)});
    scratch_bytes_ += scratch_.back().activations.bytes() + widest * sizeof(float) +
                      scratch_.back().columns.bytes() + scratch_.back().page.bytes() +
                      scratch_.back().attention.scratch_bytes();
  }
  KVERN_ASSIGN_OR_RETURN(AlignedBuffer slots, AlignedBuffer::Create(NumSlots() * SlotBytes()));
  slots_ = slots.as<float>();
  scratch_bytes_ += slots.bytes();
  buffers_.push_back(std::move(slots));
  return {};
}

// Enough to cut one sequence among all threads wherever it is, and whole tiles where that is cheap.
size_t DecoderForward::NumSlots() const {
  if (team_.size() == 1) return 0;
  constexpr size_t kCheapBytes = size_t{4} << 20;
  const size_t num_chunks = size_t{model_.max_positions()} / kChunkTokens + 1;
  const size_t sequence = num_chunks * config_.num_heads;
  const size_t tile = num_chunks * config_.num_kv_heads * kTileQueries;
  return std::max(sequence, std::min(tile, kCheapBytes / SlotBytes()));
}

std::span<const ForwardOutcome> DecoderForward::Run(const ForwardBatch& batch,
                                                    std::span<float> logits) {
  BeginBatch(batch);
  CHECK(logits.size() == logit_rows_.size() * logits_stride());
  team_.Run([&](size_t thread) { RunThread(thread, logits); });
  KeepCarried();
  outcomes_.resize(batch.slices.size());
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    outcomes_[i] = {.non_finite = failed_[i].load(),
                    .stored_differs = differs_[i].load(),
                    .next_layer = end_layer_};
  }
  return outcomes_;
}

void DecoderForward::BeginBatch(const ForwardBatch& batch) {
  batch_ = batch;
  chunk_ = nullptr;
  end_layer_ = config_.num_layers;
  rows_.clear();
  all_rows_.clear();
  logit_rows_.clear();
  for (uint32_t i = 0; i < batch.slices.size(); ++i) AddRows(i);
  CHECK(rows_.size() <= max_tokens_);
  const AttentionShape shape = scratch_[0].attention.ShapeOf(team_.size(), NumSlots());
  PlanAttention(batch_, shape, plan_);
  if (failed_.size() < batch.slices.size()) {
    failed_ = std::vector<std::atomic<bool>>(batch.slices.size());
    differs_ = std::vector<std::atomic<bool>>(batch.slices.size());
  }
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    failed_[i].store(false, std::memory_order_relaxed);
    differs_[i].store(false, std::memory_order_relaxed);
  }
}

void DecoderForward::AddRows(uint32_t index) {
  const ForwardSlice& slice = batch_.slices[index];
  const auto count = static_cast<uint32_t>(slice.tokens.size());
  CHECK(count > 0 && slice.num_logits <= count);
  CHECK(count == 1 || !slice.query_only);
  CHECK(slice.first_position + count <= model_.max_positions());
  CHECK(slice.first_position + count <= slice.view.num_blocks * kBlockTokens);
  if (slice.first_layer > 0 || slice.pace != nullptr) {
    CHECK(batch_.slices.size() == 1 && count <= kMaxCarriedTokens);
    CHECK(slice.first_layer == 0 || CanGoOn(slice));
    chunk_ = &slice;
  }
  for (uint32_t t = 0; t < count; ++t) {
    CHECK(static_cast<uint32_t>(slice.tokens[t]) < config_.vocab_size);
    const auto row = static_cast<uint32_t>(rows_.size());
    all_rows_.push_back(row);
    if (t + slice.num_logits >= count) logit_rows_.push_back(row);
    rows_.push_back({slice.tokens[t], slice.first_position + t, index});
  }
}

bool DecoderForward::CanGoOn(const ForwardSlice& slice) const {
  return carried_.num_tokens == slice.tokens.size() &&
         carried_.first_position == slice.first_position &&
         carried_.next_layer == slice.first_layer &&
         carried_.block == slice.view.blocks[slice.first_position / kBlockTokens];
}

void DecoderForward::KeepCarried() {
  if (chunk_ == nullptr) return;
  carried_ = {};
  if (end_layer_ == config_.num_layers) return;
  carried_ = {.block = chunk_->view.blocks[chunk_->first_position / kBlockTokens],
              .first_position = chunk_->first_position,
              .num_tokens = static_cast<uint32_t>(chunk_->tokens.size()),
              .next_layer = end_layer_};
  std::copy_n(x_.data, carried_.num_tokens * x_.stride, carried_x_.data);
}

void DecoderForward::RunThread(size_t thread, std::span<float> logits) {
  Embed(thread);
  team_.Barrier();
  for (uint32_t index = first_layer(); index < end_layer_; ++index) {
    RunLayer(thread, index);
    if (thread == 0 && !HasTimeFor(index + 1)) end_layer_ = index + 1;
    team_.Barrier();
  }
  if (end_layer_ == config_.num_layers && !logit_rows_.empty()) ComputeLogits(thread, logits);
}

bool DecoderForward::HasTimeFor(uint32_t layer) const {
  if (chunk_ == nullptr || chunk_->pace == nullptr || layer == config_.num_layers) return true;
  return chunk_->pace->HasTime();
}

void DecoderForward::Embed(size_t thread) {
  const auto [begin, end] = team_.Share(rows_.size(), thread);
  for (size_t i = begin; i < end; ++i) {
    const auto m = static_cast<uint32_t>(i);
    if (first_layer() == 0) {
      model_.weights().embedding.UnpackRow(static_cast<uint32_t>(rows_[m].token), x_.row(m));
    } else {
      std::copy_n(carried_x_.row(m), x_.stride, x_.row(m));
    }
  }
}

void DecoderForward::RunLayer(size_t thread, uint32_t index) {
  const LayerWeights& layer = model_.weights().layers[index];
  const auto normalized = [&](const std::vector<float>& weight) {
    return [this, &weight](uint32_t m, float* out) {
      isa_.rows->rms_norm(x_.row(m), weight.data(), config_.hidden, config_.rms_eps, out);
      return static_cast<const float*>(out);
    };
  };

  const auto attention = [&](uint32_t m, float* out) {
    return AttentionRow(thread, index, m, out);
  };
  const std::span<const uint32_t> rows = all_rows_;
  const Activations down_input(ffn_activations_, static_cast<uint32_t>(rows.size()), {&layer.down});

  ProjectHeads(thread, index,
               Pack(thread, rows, {&layer.q, &layer.k, &layer.v}, normalized(layer.attn_norm)));
  team_.Barrier();
  Attend(thread, index);
  team_.Barrier();
  AddProjection(thread, layer.attn_output, Pack(thread, rows, {&layer.attn_output}, attention));
  team_.Barrier();
  ProjectGateUp(thread, layer,
                Pack(thread, rows, {&layer.gate, &layer.up}, normalized(layer.ffn_norm)),
                down_input);
  team_.Barrier();
  AddProjection(thread, layer.down, down_input);
}

// Packs source(m, scratch) for each m of `tokens`, for `readers` to multiply: every thread all of
// few for itself, or its share of many before a barrier.
template <typename RowSource>
Activations DecoderForward::Pack(size_t thread, std::span<const uint32_t> tokens,
                                 std::initializer_list<const PackedMatrix*> readers,
                                 RowSource source) {
  const auto num_tokens = static_cast<uint32_t>(tokens.size());
  ThreadScratch& own = scratch_[thread];
  const bool is_private = num_tokens <= kPrivateTokens;
  const Activations target(is_private ? own.activations : activations_, num_tokens, readers);
  const auto [begin, end] =
      is_private ? std::pair<size_t, size_t>{0, num_tokens} : team_.Share(num_tokens, thread);
  for (size_t i = begin; i < end; ++i) {
    const uint32_t m = tokens[i];
    const bool finite =
        target.Pack(*isa_.linear, source(m, own.row.data()), static_cast<uint32_t>(i));
    if (!finite) Fail(rows_[m].slice);
  }
  if (!is_private) team_.Barrier();
  return target;
}

// Queries, keys and values of all tokens, each thread for its own heads, ready for attention: keys
// and values in their blocks, or compared with what is there.
void DecoderForward::ProjectHeads(size_t thread, uint32_t index, const Activations& input) {
  const LayerWeights& layer = model_.weights().layers[index];
  struct Part {
    const PackedMatrix* weights;
    uint32_t num_heads;
    void (DecoderForward::*finish)(const ProjectedHead& at, float* x);
  };
  const Part parts[] = {{&layer.q, config_.num_heads, &DecoderForward::PrepareQuery},
                        {&layer.k, config_.num_kv_heads, &DecoderForward::StoreKey},
                        {&layer.v, config_.num_kv_heads, &DecoderForward::StoreValue}};
  const uint32_t unit_heads = UnitHeads(), dim = config_.head_dim;
  const uint32_t unit_tiles = unit_heads * dim / kRowTile;
  const auto num_units = [&](uint32_t heads) { return (heads + unit_heads - 1) / unit_heads; };
  const size_t num_all = num_units(config_.num_heads) + 2 * num_units(config_.num_kv_heads);
  float* const projected = scratch_[thread].columns.as<float>();
  const auto project = [&](const Part& part, uint32_t first, uint32_t end) {
    const size_t stride = size_t{end - first} * kRowTile;
    input.Multiply(*isa_.linear, *part.weights, first, end, projected, stride);
    const uint32_t first_head = first * kRowTile / dim;
    const uint32_t end_head = std::min(end * kRowTile / dim, part.num_heads);
    for (uint32_t m = 0; m < input.num_tokens(); ++m) {
      for (uint32_t head = first_head; head < end_head; ++head) {
        (this->*part.finish)({thread, m, index, head},
                             projected + m * stride + size_t{head - first_head} * dim);
      }
    }
  };
  team_.TakeParts(num_all, [&](size_t begin, size_t end) {
    size_t first = 0;  // unit of the part, among those of all three
    for (const Part& part : parts) {
      const size_t units = num_units(part.num_heads);
      const size_t from = std::clamp(begin, first, first + units) - first;
      const size_t to = std::clamp(end, first, first + units) - first;
      first += units;
      ForColumns(input.num_tokens(), unit_tiles, static_cast<uint32_t>(from) * unit_tiles,
                 std::min(static_cast<uint32_t>(to) * unit_tiles, part.weights->num_tiles()),
                 [&](uint32_t tile, uint32_t end_tile) { project(part, tile, end_tile); });
    }
  });
}

// Norm and rotation of one query or key head, in place.
void DecoderForward::NormAndRotate(float* head, const std::vector<float>& norm,
                                   uint32_t position) const {
  if (config_.qk_norm) {
    isa_.rows->rms_norm(head, norm.data(), config_.head_dim, config_.rms_eps, head);
  }
  const auto rotate =
      config_.rope_style == RopeStyle::kNeox ? isa_.rows->rope_neox : isa_.rows->rope_interleaved;
  rotate(head, model_.rope().cos(position), model_.rope().sin(position), config_.rope_dims);
}

void DecoderForward::PrepareQuery(const ProjectedHead& at, float* q) {
  const LayerWeights& layer = model_.weights().layers[at.layer];
  const uint32_t dim = config_.head_dim;
  if (config_.qkv_bias) isa_.rows->add(q, &layer.q_bias[size_t{at.head} * dim], dim);
  NormAndRotate(q, layer.q_norm, rows_[at.token].position);
  isa_.rows->scale(q, query_scale_, dim);
  // Attention may hide such a query behind weights of zero; a key or value is caught when stored.
  if (!isa_.rows->all_finite(q, dim)) Fail(rows_[at.token].slice);
  std::copy_n(q, dim, q_.row(at.token) + size_t{at.head} * dim);
}

std::byte* DecoderForward::BlockOf(const Row& row) const {
  return SliceOf(row).view.blocks[row.position / kBlockTokens];
}

void DecoderForward::StoreKey(const ProjectedHead& at, float* k) {
  const LayerWeights& layer = model_.weights().layers[at.layer];
  const uint32_t dim = config_.head_dim;
  const Row& row = rows_[at.token];
  if (config_.qkv_bias) isa_.rows->add(k, &layer.k_bias[size_t{at.head} * dim], dim);
  NormAndRotate(k, layer.k_norm, row.position);
  const auto store = isa_.attention->Of(layout_.k_dtype).store_k;
  const uint32_t slot = row.position % kBlockTokens;
  std::byte* stored = BlockOf(row) + layout_.k_offset(at.layer, at.head);
  std::byte* plane = SliceOf(row).query_only ? scratch_[at.thread].page.data() : stored;
  if (!store(k, dim, slot, plane)) return Fail(row.slice);
  if (plane != stored && !layout_.EqualKeys(plane, stored, slot)) Differ(row.slice);
}

void DecoderForward::StoreValue(const ProjectedHead& at, float* v) {
  const LayerWeights& layer = model_.weights().layers[at.layer];
  const uint32_t dim = config_.head_dim;
  const Row& row = rows_[at.token];
  if (config_.qkv_bias) isa_.rows->add(v, &layer.v_bias[size_t{at.head} * dim], dim);
  const auto store = isa_.attention->Of(layout_.v_dtype).store_v;
  const uint32_t slot = row.position % kBlockTokens;
  std::byte* stored = BlockOf(row) + layout_.v_offset(at.layer, at.head);
  std::byte* plane = SliceOf(row).query_only ? scratch_[at.thread].page.data() : stored;
  if (!store(v, dim, slot, plane)) return Fail(row.slice);
  if (plane != stored && !layout_.EqualValues(plane, stored, slot)) Differ(row.slice);
}

// Calls use(first, end) for ranges of row tiles, whole units but for the last, whose outputs for
// all tokens fit into each half of a thread's columns.
template <typename Use>
void DecoderForward::ForColumns(uint32_t num_tokens, uint32_t unit_tiles, uint32_t first,
                                uint32_t end, Use use) const {
  const size_t unit_floats = size_t{unit_tiles} * kRowTile * num_tokens;
  const uint32_t tiles = static_cast<uint32_t>(ColumnFloats() / unit_floats) * unit_tiles;
  for (; first < end; first += tiles) use(first, std::min(first + tiles, end));
}

// silu(gate) · up, packed for what reads it: each thread its own columns.
void DecoderForward::ProjectGateUp(size_t thread, const LayerWeights& layer,
                                   const Activations& input, const Activations& output) {
  const uint32_t num_tokens = input.num_tokens();
  float* const gate = scratch_[thread].columns.as<float>();
  float* const up = gate + ColumnFloats();
  const auto compute = [&](uint32_t first, uint32_t end) {
    const size_t stride = size_t{end - first} * kRowTile;
    input.Multiply(*isa_.linear, layer.gate, first, end, gate, stride);
    input.Multiply(*isa_.linear, layer.up, first, end, up, stride);
    const uint32_t from = first * kRowTile, to = std::min(end * kRowTile, config_.ffn_hidden);
    for (uint32_t m = 0; m < num_tokens; ++m) {
      float* const row = gate + m * stride;
      isa_.rows->silu_mul(row, up + m * stride, to - from, row);
      if (!output.PackColumns(*isa_.linear, row, m, from, to - from)) Fail(rows_[m].slice);
    }
  };
  const uint32_t num_tiles = layer.gate.num_tiles();
  team_.TakeParts((num_tiles + kBlockTiles - 1) / kBlockTiles, [&](size_t begin, size_t end) {
    ForColumns(num_tokens, kBlockTiles, static_cast<uint32_t>(begin) * kBlockTiles,
               std::min(static_cast<uint32_t>(end) * kBlockTiles, num_tiles), compute);
  });
}

// x += weights · input, each thread for its own output rows.
void DecoderForward::AddProjection(size_t thread, const PackedMatrix& weights,
                                   const Activations& input) {
  float* const projected = scratch_[thread].columns.as<float>();
  const auto compute = [&](uint32_t first, uint32_t end) {
    const size_t stride = size_t{end - first} * kRowTile;
    input.Multiply(*isa_.linear, weights, first, end, projected, stride);
    const uint32_t from = first * kRowTile, to = std::min(end * kRowTile, config_.hidden);
    for (uint32_t m = 0; m < input.num_tokens(); ++m) {
      isa_.rows->add(x_.row(m) + from, projected + m * stride, to - from);
    }
  };
  team_.TakeParts(weights.num_tiles(), [&](size_t begin, size_t end) {
    ForColumns(input.num_tokens(), kBlockTiles, static_cast<uint32_t>(begin),
               static_cast<uint32_t>(end), compute);
  });
}

AttentionTask DecoderForward::TaskOfLayer(uint32_t index) const {
  return {.batch = &batch_,
          .plan = &plan_,
          .layer = index,
          .queries = q_.data,
          .out = attention_.data,
          .stride = q_.stride,
          .slots = slots_};
}

void DecoderForward::Attend(size_t thread, uint32_t index) {
  scratch_[thread].attention.RunShare(TaskOfLayer(index), thread);
}

// What attention gave for a token; where its tile was cut, put together in `scratch`.
const float* DecoderForward::AttentionRow(size_t thread, uint32_t index, uint32_t token,
                                          float* scratch) {
  const QueryTile& tile = plan_.tiles[plan_.tile_of_row[token]];
  if (tile.num_merged_units == tile.num_units) return attention_.row(token);
  scratch_[thread].attention.FoldRow(TaskOfLayer(index), scratch_[tile.owner].attention, token,
                                     scratch);
  return scratch;
}

void DecoderForward::ComputeLogits(size_t thread, std::span<float> logits) {
  const PackedMatrix& head = model_.weights().head();
  const auto normalized = [this](uint32_t m, float* out) {
    isa_.rows->rms_norm(x_.row(m), model_.weights().output_norm.data(), config_.hidden,
                        config_.rms_eps, out);
    return static_cast<const float*>(out);
  };
  const Activations input = Pack(thread, logit_rows_, {&head}, normalized);
  team_.TakeParts(head.num_tiles(), [&](size_t begin, size_t end) {
    input.Multiply(*isa_.linear, head, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                   logits.data() + begin * kRowTile, logits_stride());
  });
  team_.Barrier();
  const auto [from, to] = team_.Share(logit_rows_.size(), thread);
  for (size_t i = from; i < to; ++i) {
    const float* row = logits.data() + i * logits_stride();
    if (!isa_.rows->all_finite(row, config_.vocab_size)) Fail(rows_[logit_rows_[i]].slice);
  }
}

}  // namespace

Result<std::unique_ptr<Forward>> Forward::Create(const Model* model, const compute::Isa* isa,
                                                 ThreadTeam* team, const compute::KvLayout& layout,
                                                 uint32_t max_tokens) {
  const ScopedFpEnv fp_env;
  auto forward = std::make_unique<DecoderForward>(model, isa, team, layout, max_tokens);
  KVERN_RETURN_IF_ERROR(forward->Allocate());
  return std::unique_ptr<Forward>(std::move(forward));
}

}  // namespace kvern::model
