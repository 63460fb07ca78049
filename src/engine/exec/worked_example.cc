#include "engine/exec/worked_example.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "base/check.h"
#include "base/fp_env.h"
#include "compute/packed_matrix.h"
#include "engine/exec/cpu.h"
#include "kv/block_store.h"
#include "kv/block_table.h"

namespace kvern::engine {
namespace {

constexpr uint32_t kDim = 4;
constexpr uint32_t kMaxTokens = 4;
static_assert(kMaxTokens <= compute::kTokenTile);
constexpr uint32_t kPoolBlocks = 2;

constexpr float kTokens[] = {
    1,     0,      1,      0,  // I
    0,     1,      1,      0,  // love
    1,     1,      0,      1,  // AI
    0.82f, 0.726f, 0.548f, 0,  // very
};
constexpr std::span<const float> kAllTokens = kTokens;
constexpr auto kPrompt = kAllTokens.first<size_t{3} * kDim>();
constexpr auto kNextToken = kAllTokens.last<kDim>();

constexpr float kIdentity[] = {1, 0, 0, 0, /**/ 0, 1, 0, 0, /**/ 0, 0, 1, 0, /**/ 0, 0, 0, 1};

// The one sequence: its block table and the three projections.
class Example {
 public:
  Example(const compute::Isa& isa, const compute::KvLayout& layout, kv::BlockPool* pool)
      : isa_(isa), layout_(layout), pool_(pool), table_(pool, kv::GroupId{0}) {}

  Status Prepare() {
    for (compute::PackedMatrix* weights : {&query_weights_, &key_weights_, &value_weights_}) {
      KVERN_ASSIGN_OR_RETURN(*weights,
                             compute::PackedMatrix::Create(compute::QuantType::kF32, kDim, kDim));
      weights->PackTiles(reinterpret_cast<const std::byte*>(kIdentity), 0, weights->num_tiles());
    }
    return {};
  }

  Result<WorkedStep> Step(std::span<const float> inputs) {
    WorkedStep step;
    const auto num_new = static_cast<uint32_t>(inputs.size() / kDim);
    step.inputs = Matrix(num_new, kDim);
    std::ranges::copy(inputs, step.inputs.values.begin());
    step.queries = Project(query_weights_, step.inputs);
    step.keys = Project(key_weights_, step.inputs);
    step.values = Project(value_weights_, step.inputs);

    const auto first = static_cast<uint32_t>(table_.length());
    KVERN_RETURN_IF_ERROR(table_.Extend(num_new));
    Write(step, first);
    Attend(step, first);
    table_.Commit(table_.length());

    ReadBack(step);
    step.block.assign(block(), block() + layout_.block_bytes());
    step.pool_bytes = pool_->stats().bytes;
    return step;
  }

 private:
  std::byte* block() const { return table_.View().blocks[0]; }

  Matrix Project(const compute::PackedMatrix& weights, const Matrix& inputs) const {
    std::vector<float> tile(inputs.values.size());
    for (uint32_t t = 0; t < inputs.rows; ++t) {
      isa_.linear->pack_floats(inputs.row(t), kDim,
                               {.tile = reinterpret_cast<std::byte*>(tile.data()),
                                .num_tokens = inputs.rows,
                                .token = t});
    }
    Matrix padded(inputs.rows, weights.num_tiles() * compute::kRowTile);
    isa_.linear->multiply[FormatIndex(weights.format())](
        {.weights = weights.tile(0),
         .tile_bytes = weights.tile_bytes(),
         .num_row_tiles = weights.num_tiles(),
         .cols = kDim,
         .activations = reinterpret_cast<const std::byte*>(tile.data()),
         .num_tokens = inputs.rows,
         .out = padded.row(0),
         .out_stride = padded.cols});
    Matrix result(inputs.rows, kDim);
    for (uint32_t t = 0; t < inputs.rows; ++t) std::copy_n(padded.row(t), kDim, result.row(t));
    return result;
  }

  void Write(const WorkedStep& step, uint32_t first) {
    for (uint32_t t = 0; t < step.keys.rows; ++t) {
      CHECK(isa_.attention->Of(layout_.k_dtype)
                .store_k(step.keys.row(t), kDim, first + t, block() + layout_.k_offset(0, 0)));
      CHECK(isa_.attention->Of(layout_.v_dtype)
                .store_v(step.values.row(t), kDim, first + t, block() + layout_.v_offset(0, 0)));
    }
  }

  Matrix Prepared(const Matrix& queries) const {
    static_assert(compute::QueryFloats(kDim) == kDim);
    Matrix prepared(queries.rows, kDim);
    for (uint32_t i = 0; i < queries.rows; ++i) {
      isa_.attention->Of(layout_.k_dtype).prepare(queries.row(i), kDim, prepared.row(i));
    }
    return prepared;
  }

  // `queries`, prepared, against the sequence's block; query i sees visible[i].
  compute::ChunkTask Task(const Matrix& queries, const compute::VisibleRange* visible,
                          std::vector<float>& partials) const {
    partials.assign(queries.rows * compute::PartialFloats(layout_.v_dim()), 0.0f);
    return {.queries = queries.values.data(),
            .num_queries = queries.rows,
            .head_dim = kDim,
            .v_dim = layout_.v_dim(),
            .blocks = table_.View().blocks,
            .num_blocks = 1,
            .k_offset = layout_.k_offset(0, 0),
            .v_offset = layout_.v_offset(0, 0),
            .visible = visible,
            .partials = partials.data()};
  }

  // The kernels keep scores in powers of two and divide by the sum of the weights last; what they
  // keep is converted here to what the formulas of attention show.
  void Attend(WorkedStep& step, uint32_t first) {
    Matrix scaled = step.queries;
    const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(double{kDim}));
    for (float& q : scaled.values) q *= scale;
    scaled = Prepared(scaled);
    compute::VisibleRange visible[kMaxTokens];
    for (uint32_t i = 0; i < scaled.rows; ++i) {
      visible[i] = compute::VisibleInChunk(first + i, /*window=*/0, /*chunk=*/0);
    }
    std::vector<float> partials;
    const compute::ChunkTask task = Task(scaled, visible, partials);

    alignas(64) float rows[kMaxTokens * kChunkTokens];
    const auto length = static_cast<uint32_t>(table_.length());
    isa_.attention->Of(layout_.k_dtype).scores(task, rows);
    step.scores = Matrix(scaled.rows, length);
    for (uint32_t i = 0; i < scaled.rows; ++i) {
      float* scores = step.scores.row(i);
      std::fill_n(scores, length, -std::numeric_limits<float>::infinity());
      for (uint32_t t = visible[i].first; t < visible[i].end; ++t) {
        scores[t] = static_cast<float>(rows[i * kChunkTokens + t] / std::numbers::log2e);
      }
    }
    isa_.attention->weights(task, rows);
    step.weights = Matrix(scaled.rows, length);
    for (uint32_t i = 0; i < scaled.rows; ++i) {
      const float sum = partials[i * compute::PartialFloats(layout_.v_dim()) + 1];
      for (uint32_t t = 0; t < length; ++t) {
        step.weights.row(i)[t] = rows[i * kChunkTokens + t] / sum;
      }
    }

    compute::AttendChunk(*isa_.attention, layout_.k_dtype, layout_.v_dtype, task);
    step.outputs = Matrix(scaled.rows, kDim);
    for (uint32_t i = 0; i < scaled.rows; ++i) {
      isa_.attention->finish(&partials[i * compute::PartialFloats(layout_.v_dim())], kDim,
                             step.outputs.row(i));
    }
  }

  // Through the kernels, of floats exactly: a query of a single 1 scores one element of each key,
  // and a weight of 1 on one token alone gives its value.
  void ReadBack(WorkedStep& step) const {
    const auto length = static_cast<uint32_t>(table_.length());
    Matrix units(kDim, kDim);
    std::ranges::copy(kIdentity, units.values.begin());
    std::vector<float> partials;
    alignas(64) float rows[kMaxTokens * kChunkTokens] = {};
    const Matrix prepared = Prepared(units);
    const compute::ChunkTask task = Task(prepared, nullptr, partials);
    isa_.attention->Of(layout_.k_dtype).scores(task, rows);
    step.cached_keys = Matrix(length, kDim);
    for (uint32_t t = 0; t < length; ++t) {
      for (uint32_t d = 0; d < kDim; ++d) step.cached_keys.row(t)[d] = rows[d * kChunkTokens + t];
    }

    std::ranges::fill(rows, 0.0f);
    for (uint32_t t = 0; t < length; ++t) rows[t * kChunkTokens + t] = 1.0f;
    isa_.attention->Of(layout_.v_dtype).outputs(task, rows);
    step.cached_values = Matrix(length, kDim);
    for (uint32_t t = 0; t < length; ++t) {
      std::copy_n(&partials[t * compute::PartialFloats(layout_.v_dim()) + 16], kDim,
                  step.cached_values.row(t));
    }
  }

  const compute::Isa& isa_;
  const compute::KvLayout& layout_;
  kv::BlockPool* const pool_;
  kv::BlockTable table_;
  compute::PackedMatrix query_weights_, key_weights_, value_weights_;
};

}  // namespace

Result<WorkedExample> ComputeWorkedExample(const compute::Isa& isa, compute::KvDtype k_dtype,
                                           compute::KvDtype v_dtype) {
  const ScopedFpEnv fp_env;
  WorkedExample result;
  result.layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = kDim, .k_dtype = k_dtype, .v_dtype = v_dtype};
  kv::HostBlockStore store(MakeCopyRows(result.layout));
  kv::BlockPool pool(&store, kPoolBlocks * result.layout.block_bytes(),
                     {MakeGroupSpec(result.layout)}, result.layout.block_bytes());
  result.pool_before = pool.stats().bytes;
  {
    Example example(isa, result.layout, &pool);
    KVERN_RETURN_IF_ERROR(example.Prepare());
    KVERN_ASSIGN_OR_RETURN(result.prefill, example.Step(kPrompt));
    KVERN_ASSIGN_OR_RETURN(result.decode, example.Step(kNextToken));
  }
  result.pool_after = pool.stats().bytes;
  Example uncached(isa, result.layout, &pool);
  KVERN_RETURN_IF_ERROR(uncached.Prepare());
  KVERN_ASSIGN_OR_RETURN(result.recomputed, uncached.Step(kAllTokens));
  return result;
}

}  // namespace kvern::engine
