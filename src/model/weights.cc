#include "model/weights.h"

#include <span>

namespace kvern::model {
namespace {

using compute::PackedMatrix;

struct Shape {
  uint32_t rows;
  uint32_t cols;
};

// Visits every matrix and vector that `config` calls for, in one place for planning and loading.
//   matrix(name, shape, PackedMatrix&) and vector(name, length, std::vector<float>&) → Status
template <typename MatrixVisitor, typename VectorVisitor>
Status VisitLayer(const ModelConfig& config, uint32_t index, LayerWeights& layer,
                  MatrixVisitor matrix, VectorVisitor vector) {
  const auto name = [index](const char* part) { return fmt::format("blk.{}.{}", index, part); };
  const uint32_t q_width = config.num_heads * config.head_dim;
  const uint32_t kv_width = config.num_kv_heads * config.head_dim;
  const uint32_t hidden = config.hidden, ffn = config.ffn_hidden;
  KVERN_RETURN_IF_ERROR(vector(name("attn_norm.weight"), hidden, layer.attn_norm));
  KVERN_RETURN_IF_ERROR(matrix(name("attn_q.weight"), Shape{q_width, hidden}, layer.q));
  KVERN_RETURN_IF_ERROR(matrix(name("attn_k.weight"), Shape{kv_width, hidden}, layer.k));
  KVERN_RETURN_IF_ERROR(matrix(name("attn_v.weight"), Shape{kv_width, hidden}, layer.v));
  if (config.qkv_bias) {
    KVERN_RETURN_IF_ERROR(vector(name("attn_q.bias"), q_width, layer.q_bias));
    KVERN_RETURN_IF_ERROR(vector(name("attn_k.bias"), kv_width, layer.k_bias));
    KVERN_RETURN_IF_ERROR(vector(name("attn_v.bias"), kv_width, layer.v_bias));
  }
  if (config.qk_norm) {
    KVERN_RETURN_IF_ERROR(vector(name("attn_q_norm.weight"), config.head_dim, layer.q_norm));
    KVERN_RETURN_IF_ERROR(vector(name("attn_k_norm.weight"), config.head_dim, layer.k_norm));
  }
  KVERN_RETURN_IF_ERROR(
      matrix(name("attn_output.weight"), Shape{hidden, q_width}, layer.attn_output));
  KVERN_RETURN_IF_ERROR(vector(name("ffn_norm.weight"), hidden, layer.ffn_norm));
  KVERN_RETURN_IF_ERROR(matrix(name("ffn_gate.weight"), Shape{ffn, hidden}, layer.gate));
  KVERN_RETURN_IF_ERROR(matrix(name("ffn_up.weight"), Shape{ffn, hidden}, layer.up));
  return matrix(name("ffn_down.weight"), Shape{hidden, ffn}, layer.down);
}

template <typename MatrixVisitor, typename VectorVisitor>
Status VisitAll(const Gguf& gguf, const ModelConfig& config, Weights& weights, MatrixVisitor matrix,
                VectorVisitor vector) {
  const Shape vocabulary = {config.vocab_size, config.hidden};
  KVERN_RETURN_IF_ERROR(matrix("token_embd.weight", vocabulary, weights.embedding));
  if (gguf.FindTensor("output.weight") != nullptr) {
    KVERN_RETURN_IF_ERROR(matrix("output.weight", vocabulary, weights.untied_head));
  }
  KVERN_RETURN_IF_ERROR(vector("output_norm.weight", config.hidden, weights.output_norm));
  if (gguf.FindTensor("rope_freqs.weight") != nullptr) {
    KVERN_RETURN_IF_ERROR(vector("rope_freqs.weight", config.rope_dims / 2, weights.rope_factors));
  }
  weights.layers.resize(config.num_layers);
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    KVERN_RETURN_IF_ERROR(VisitLayer(config, i, weights.layers[i], matrix, vector));
  }
  return {};
}

// The tensor `name`, of `rows` rows (none: a vector) of `cols` elements.
Result<const TensorInfo*> FindShaped(const Gguf& gguf, const std::string& name,
                                     std::optional<uint32_t> rows, uint32_t cols) {
  KVERN_ASSIGN_OR_RETURN(const TensorInfo* tensor, gguf.GetTensor(name));
  if (tensor->num_elements != uint64_t{cols} * rows.value_or(1) || tensor->dims[0] != cols) {
    return Errorf(ErrorCode::kCorrupt, "{}: {}: is {} × {}, but the model's metadata needs {} × {}",
                  gguf.path(), name, tensor->num_elements / tensor->dims[0], tensor->dims[0],
                  rows.value_or(1), cols);
  }
  return tensor;
}

class Loader {
 public:
  // Loads into `memory`, which is as large as planned.
  Loader(const Gguf& gguf, ThreadTeam* team, const ProgressFunction& progress,
         AlignedBuffer& memory)
      : gguf_(gguf), team_(team), progress_(progress), memory_(memory) {}

  Status LoadMatrix(const std::string& name, Shape shape, PackedMatrix& out) {
    KVERN_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                           FindShaped(gguf_, name, shape.rows, shape.cols));
    auto created =
        PackedMatrix::Place(tensor->type, shape.rows, shape.cols, memory_.data() + loaded_bytes_);
    if (!created.ok()) {
      return Errorf(created.error().code, "{}: {}: {}", gguf_.path(), name,
                    created.error().message);
    }
    out = std::move(*created);
    team_->Run([&](size_t thread) {
      const auto [begin, end] = team_->Share(out.num_tiles(), thread);
      out.PackTiles(tensor->data.data(), static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
    });
    gguf_.Discard(*tensor);
    loaded_bytes_ += out.bytes();
    if (progress_)
      progress_(static_cast<double>(loaded_bytes_) / static_cast<double>(memory_.bytes()));
    return {};
  }

  Status LoadVector(const std::string& name, uint32_t length, std::vector<float>& out) {
    KVERN_ASSIGN_OR_RETURN(const TensorInfo* tensor, FindShaped(gguf_, name, std::nullopt, length));
    out.resize(length);
    compute::Dequantize(tensor->type, tensor->data, out);
    return {};
  }

 private:
  const Gguf& gguf_;
  ThreadTeam* const team_;
  const ProgressFunction& progress_;
  AlignedBuffer& memory_;
  size_t loaded_bytes_ = 0;
};

}  // namespace

size_t Weights::bytes() const {
  size_t sum = embedding.bytes() + untied_head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down}) {
      sum += matrix->bytes();
    }
  }
  return sum;
}

Result<size_t> PlanWeightBytes(const Gguf& gguf, const ModelConfig& config) {
  size_t sum = 0;
  Weights unused;
  const auto matrix = [&](const std::string& name, Shape shape, PackedMatrix&) -> Status {
    KVERN_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                           FindShaped(gguf, name, shape.rows, shape.cols));
    KVERN_ASSIGN_OR_RETURN(const size_t bytes,
                           PackedMatrix::PlanBytes(tensor->type, shape.rows, shape.cols));
    sum += bytes;
    return {};
  };
  const auto vector = [&](const std::string& name, uint32_t length, std::vector<float>&) -> Status {
    KVERN_RETURN_IF_ERROR(FindShaped(gguf, name, std::nullopt, length));
    return {};
  };
  KVERN_RETURN_IF_ERROR(VisitAll(gguf, config, unused, matrix, vector));
  return sum;
}

Result<Weights> LoadWeights(const Gguf& gguf, const ModelConfig& config, ThreadTeam* team,
                            const ProgressFunction& progress) {
  KVERN_ASSIGN_OR_RETURN(const size_t total_bytes, PlanWeightBytes(gguf, config));
  Weights weights;
  KVERN_ASSIGN_OR_RETURN(weights.memory, AlignedBuffer::Create(total_bytes));
  Loader loader(gguf, team, progress, weights.memory);
  KVERN_RETURN_IF_ERROR(VisitAll(
      gguf, config, weights,
      [&](const std::string& name, Shape shape, PackedMatrix& out) {
        return loader.LoadMatrix(name, shape, out);
      },
      [&](const std::string& name, uint32_t length, std::vector<float>& out) {
        return loader.LoadVector(name, length, out);
      }));
  return weights;
}

}  // namespace kvern::model
