#include "model/forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <numbers>
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
  Activations activations;  // of kPrivateTokens
  std::vector<float> row;
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
  std::vector<bool> Run(const ForwardBatch& batch, std::span<float> logits) override;
  size_t logits_stride() const override { return Padded(config_.vocab_size); }
  size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  struct Row {
    TokenId token;
    uint32_t position;
    uint32_t slice;
  };

  void BeginBatch(const ForwardBatch& batch);
  void RunThread(size_t thread, std::span<float> logits);
  void Embed(size_t thread);
  void RunLayer(size_t thread, uint32_t index);
  void StoreKeysAndValues(size_t thread, uint32_t index);
  void StoreHead(uint32_t token, uint32_t index, uint32_t head);
  void PrepareHead(float* head, const std::vector<float>& norm, uint32_t position) const;
  void Attend(size_t thread, uint32_t index);
  void ComputeLogits(size_t thread, std::span<float> logits);

  template <typename RowSource>
  const Activations& Pack(size_t thread, std::span<const uint32_t> tokens,
                          std::initializer_list<const PackedMatrix*> readers, RowSource source);
  void ProjectQkv(size_t thread, const LayerWeights& layer, const Activations& input);
  void ProjectGateUp(size_t thread, const LayerWeights& layer, const Activations& input);
  void AddProjection(size_t thread, const PackedMatrix& weights, const Activations& input);
  void Fail(uint32_t slice) { failed_[slice].store(true, std::memory_order_relaxed); }

  const Model& model_;
  const ModelConfig& config_;
  const compute::Isa& isa_;
  ThreadTeam& team_;
  const compute::KvLayout layout_;
  const uint32_t max_tokens_;
  const float query_scale_;  // log2(e) / sqrt(head_dim), rounded once (rule N4)

  std::vector<AlignedBuffer> buffers_;
  FloatRows x_, q_, k_, v_, attention_, gate_, up_, projected_;
  Activations activations_;
  std::vector<ThreadScratch> scratch_;
  size_t scratch_bytes_ = 0;

  // Of the batch in progress.
  ForwardBatch batch_;
  std::vector<Row> rows_;
  std::vector<uint32_t> all_rows_;    // 0, 1, …
  std::vector<uint32_t> logit_rows_;  // rows whose logits are wanted
  AttentionPlan plan_;
  std::unique_ptr<std::atomic<bool>[]> failed_;
};

Status DecoderForward::Allocate() {
  const uint32_t q_width = config_.num_heads * config_.head_dim;
  const uint32_t kv_width = config_.num_kv_heads * config_.head_dim;
  const std::pair<FloatRows*, uint32_t> sizes[] = {{&x_, config_.hidden},
                                                   {&q_, q_width},
                                                   {&k_, kv_width},
                                                   {&v_, kv_width},
                                                   {&attention_, q_width},
                                                   {&gate_, config_.ffn_hidden},
                                                   {&up_, config_.ffn_hidden},
                                                   {&projected_, config_.hidden}};
  for (const auto& [rows, width] : sizes) {
    const size_t bytes = size_t{max_tokens_} * Padded(width) * sizeof(float);
    KVERN_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Create(bytes));
    *rows = {buffer.as<float>(), Padded(width)};
    scratch_bytes_ += buffer.bytes();
    buffers_.push_back(std::move(buffer));
  }
  const InputForms forms = FormsOf(model_.weights());
  const uint32_t widest = std::max({config_.hidden, q_width, config_.ffn_hidden});
  KVERN_ASSIGN_OR_RETURN(activations_, Activations::Create(max_tokens_, widest, forms));
  scratch_bytes_ += activations_.bytes();
  for (size_t thread = 0; thread < team_.size(); ++thread) {
    KVERN_ASSIGN_OR_RETURN(Activations own, Activations::Create(kPrivateTokens, widest, forms));
    scratch_.push_back(
        {std::move(own), std::vector<float>(widest), TileAttention(isa_.attention, layout_)});
    scratch_bytes_ += scratch_.back().activations.bytes() + widest * sizeof(float) +
                      scratch_.back().attention.scratch_bytes();
  }
  return {};
}

std::vector<bool> DecoderForward::Run(const ForwardBatch& batch, std::span<float> logits) {
  BeginBatch(batch);
  CHECK(logits.size() == logit_rows_.size() * logits_stride());
  team_.Run([&](size_t thread) { RunThread(thread, logits); });
  std::vector<bool> failed(batch.slices.size());
  for (size_t i = 0; i < failed.size(); ++i) failed[i] = failed_[i].load();
  return failed;
}

void DecoderForward::BeginBatch(const ForwardBatch& batch) {
  batch_ = batch;
  rows_.clear();
  all_rows_.clear();
  logit_rows_.clear();
  for (uint32_t i = 0; i < batch.slices.size(); ++i) {
    const ForwardSlice& slice = batch.slices[i];
    const auto count = static_cast<uint32_t>(slice.tokens.size());
    CHECK(count > 0 && slice.num_logits <= count);
    CHECK(slice.first_position + count <= model_.max_positions());
    CHECK(slice.first_position + count <= slice.view.num_blocks * kBlockTokens);
    for (uint32_t t = 0; t < count; ++t) {
      CHECK(static_cast<uint32_t>(slice.tokens[t]) < config_.vocab_size);
      const auto row = static_cast<uint32_t>(rows_.size());
      all_rows_.push_back(row);
      if (t + slice.num_logits >= count) logit_rows_.push_back(row);
      rows_.push_back({slice.tokens[t], slice.first_position + t, i});
    }
  }
  CHECK(rows_.size() <= max_tokens_);
  const uint32_t group = std::min(config_.group_size(), compute::kMaxChunkQueries);
  plan_ = PlanAttention(batch, compute::kMaxChunkQueries / group);
  failed_ = std::make_unique<std::atomic<bool>[]>(batch.slices.size());
}

void DecoderForward::RunThread(size_t thread, std::span<float> logits) {
  Embed(thread);
  team_.Barrier();
  for (uint32_t index = 0; index < config_.num_layers; ++index) RunLayer(thread, index);
  if (!logit_rows_.empty()) ComputeLogits(thread, logits);
}

void DecoderForward::Embed(size_t thread) {
  const auto [begin, end] = team_.Share(rows_.size(), thread);
  for (size_t m = begin; m < end; ++m) {
    model_.weights().embedding.UnpackRow(static_cast<uint32_t>(rows_[m].token),
                                         x_.row(static_cast<uint32_t>(m)));
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

  ProjectQkv(thread, layer,
             Pack(thread, all_rows_, {&layer.q, &layer.k, &layer.v}, normalized(layer.attn_norm)));
  team_.Barrier();
  StoreKeysAndValues(thread, index);
  team_.Barrier();
  Attend(thread, index);
  team_.Barrier();
  AddProjection(thread, layer.attn_output,
                Pack(thread, all_rows_, {&layer.attn_output},
                     [this](uint32_t m, float*) { return attention_.row(m); }));
  team_.Barrier();
  ProjectGateUp(thread, layer,
                Pack(thread, all_rows_, {&layer.gate, &layer.up}, normalized(layer.ffn_norm)));
  team_.Barrier();
  AddProjection(
      thread, layer.down,
      Pack(thread, all_rows_, {&layer.down}, [this](uint32_t m, float*) { return gate_.row(m); }));
  team_.Barrier();
}

// Packs source(m, scratch) for each m of `tokens`, for `readers` to multiply: every thread all of
// few for itself, or its share of many between barriers.
template <typename RowSource>
const Activations& DecoderForward::Pack(size_t thread, std::span<const uint32_t> tokens,
                                        std::initializer_list<const PackedMatrix*> readers,
                                        RowSource source) {
  const auto num_tokens = static_cast<uint32_t>(tokens.size());
  ThreadScratch& own = scratch_[thread];
  const bool is_private = num_tokens <= kPrivateTokens;
  Activations& target = is_private ? own.activations : activations_;
  if (is_private || thread == 0) target.Reset(num_tokens, readers);
  if (!is_private) team_.Barrier();
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

void DecoderForward::ProjectQkv(size_t thread, const LayerWeights& layer,
                                const Activations& input) {
  const std::pair<const PackedMatrix*, const FloatRows*> parts[] = {
      {&layer.q, &q_}, {&layer.k, &k_}, {&layer.v, &v_}};
  const auto [begin, end] =
      team_.Share(layer.q.num_tiles() + layer.k.num_tiles() + layer.v.num_tiles(), thread);
  size_t first = 0;  // of the part, among the tiles of all three
  for (const auto& [matrix, out] : parts) {
    const size_t from = std::max(begin, first), to = std::min(end, first + matrix->num_tiles());
    if (from < to) {
      input.Multiply(*isa_.linear, *matrix, static_cast<uint32_t>(from - first),
                     static_cast<uint32_t>(to - first), out->data, out->stride);
    }
    first += matrix->num_tiles();
  }
}

void DecoderForward::ProjectGateUp(size_t thread, const LayerWeights& layer,
                                   const Activations& input) {
  const auto [begin, end] = team_.Share(layer.gate.num_tiles(), thread);
  const auto first = static_cast<uint32_t>(begin), last = static_cast<uint32_t>(end);
  input.Multiply(*isa_.linear, layer.gate, first, last, gate_.data, gate_.stride);
  input.Multiply(*isa_.linear, layer.up, first, last, up_.data, up_.stride);
  const uint32_t from = first * kRowTile, to = std::min(last * kRowTile, config_.ffn_hidden);
  if (from >= to) return;
  for (uint32_t m = 0; m < input.num_tokens(); ++m) {
    isa_.rows->silu_mul(gate_.row(m) + from, up_.row(m) + from, to - from, gate_.row(m) + from);
  }
}

// x += weights · input, each thread for its own output rows.
void DecoderForward::AddProjection(size_t thread, const PackedMatrix& weights,
                                   const Activations& input) {
  const auto [begin, end] = team_.Share(weights.num_tiles(), thread);
  const auto first = static_cast<uint32_t>(begin), last = static_cast<uint32_t>(end);
  input.Multiply(*isa_.linear, weights, first, last, projected_.data, projected_.stride);
  const uint32_t from = first * kRowTile, to = std::min(last * kRowTile, config_.hidden);
  if (from >= to) return;
  for (uint32_t m = 0; m < input.num_tokens(); ++m) {
    isa_.rows->add(x_.row(m) + from, projected_.row(m) + from, to - from);
  }
}

// Norm and rotation of one query or key head, in place.
void DecoderForward::PrepareHead(float* head, const std::vector<float>& norm,
                                 uint32_t position) const {
  if (config_.qk_norm) {
    isa_.rows->rms_norm(head, norm.data(), config_.head_dim, config_.rms_eps, head);
  }
  const auto rotate =
      config_.rope_style == RopeStyle::kNeox ? isa_.rows->rope_neox : isa_.rows->rope_interleaved;
  rotate(head, model_.rope().cos(position), model_.rope().sin(position), config_.rope_dims);
}

void DecoderForward::StoreKeysAndValues(size_t thread, uint32_t index) {
  const LayerWeights& layer = model_.weights().layers[index];
  const auto [begin, end] = team_.Share(rows_.size(), thread);
  for (size_t i = begin; i < end; ++i) {
    const auto m = static_cast<uint32_t>(i);
    const uint32_t position = rows_[m].position;
    if (config_.qkv_bias) {
      isa_.rows->add(q_.row(m), layer.q_bias.data(), layer.q_bias.size());
      isa_.rows->add(k_.row(m), layer.k_bias.data(), layer.k_bias.size());
      isa_.rows->add(v_.row(m), layer.v_bias.data(), layer.v_bias.size());
    }
    for (uint32_t head = 0; head < config_.num_heads; ++head) {
      PrepareHead(q_.row(m) + head * config_.head_dim, layer.q_norm, position);
    }
    const size_t q_width = size_t{config_.num_heads} * config_.head_dim;
    isa_.rows->scale(q_.row(m), query_scale_, q_width);
    // Attention may hide such a query behind weights of zero; a key or value is caught when stored.
    if (!isa_.rows->all_finite(q_.row(m), q_width)) Fail(rows_[m].slice);
    for (uint32_t head = 0; head < config_.num_kv_heads; ++head) {
      PrepareHead(k_.row(m) + head * config_.head_dim, layer.k_norm, position);
      StoreHead(m, index, head);
    }
  }
}

void DecoderForward::StoreHead(uint32_t token, uint32_t index, uint32_t head) {
  const Row& row = rows_[token];
  std::byte* block = batch_.slices[row.slice].view.blocks[row.position / kBlockTokens];
  const uint32_t slot = row.position % kBlockTokens;
  const size_t offset = size_t{head} * config_.head_dim;
  const auto k = static_cast<size_t>(layout_.k_dtype), v = static_cast<size_t>(layout_.v_dtype);
  const bool k_ok = isa_.attention->store_k[k](k_.row(token) + offset, config_.head_dim, slot,
                                               block + layout_.k_offset(index, head));
  const bool v_ok = isa_.attention->store_v[v](v_.row(token) + offset, config_.head_dim, slot,
                                               block + layout_.v_offset(index, head));
  if (!k_ok || !v_ok) Fail(row.slice);
}

void DecoderForward::Attend(size_t thread, uint32_t index) {
  const uint32_t group = config_.group_size();
  const uint32_t part_heads = std::min(group, compute::kMaxChunkQueries);
  const uint32_t parts = (group + part_heads - 1) / part_heads;
  const size_t num_items = plan_.tiles.size() * config_.num_kv_heads * parts;
  // Dealt in turn, longest first: later tiles see more keys.
  for (size_t item = thread; item < num_items; item += team_.size()) {
    const size_t tile = plan_.tiles.size() - 1 - item / (config_.num_kv_heads * parts);
    const auto kv_head = static_cast<uint32_t>(item / parts % config_.num_kv_heads);
    const auto part = static_cast<uint32_t>(item % parts);
    scratch_[thread].attention.Run({.batch = &batch_,
                                    .plan = &plan_,
                                    .tile = &plan_.tiles[tile],
                                    .layer = index,
                                    .kv_head = kv_head,
                                    .first_head = kv_head * group + part * part_heads,
                                    .num_heads = std::min(part_heads, group - part * part_heads),
                                    .queries = q_.data,
                                    .out = attention_.data,
                                    .stride = q_.stride});
  }
}

void DecoderForward::ComputeLogits(size_t thread, std::span<float> logits) {
  const PackedMatrix& head = model_.weights().head();
  const auto normalized = [this](uint32_t m, float* out) {
    isa_.rows->rms_norm(x_.row(m), model_.weights().output_norm.data(), config_.hidden,
                        config_.rms_eps, out);
    return static_cast<const float*>(out);
  };
  const Activations& input = Pack(thread, logit_rows_, {&head}, normalized);
  const auto [begin, end] = team_.Share(head.num_tiles(), thread);
  input.Multiply(*isa_.linear, head, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                 logits.data(), logits_stride());
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
