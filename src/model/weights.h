// Weights: a decoder's tensors, repacked for the kernels.
//
// Loading checks every shape against the configuration, packs on all threads of a team, and drops
// each tensor's file pages once packed, so the peak is about one copy. Immutable afterwards; safe
// from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "compute/packed_matrix.h"
#include "model/config.h"
#include "model/gguf.h"

namespace kvern::model {

struct LayerWeights {
  std::vector<float> attn_norm;   // [hidden]
  compute::PackedMatrix q, k, v;  // [heads · head_dim][hidden], [kv_heads · head_dim][hidden]
  std::vector<float> q_bias, k_bias, v_bias;  // empty without config.qkv_bias
  std::vector<float> q_norm, k_norm;          // [head_dim]; empty without config.qk_norm
  compute::PackedMatrix attn_output;          // [hidden][heads · head_dim]
  std::vector<float> ffn_norm;                // [hidden]
  compute::PackedMatrix gate, up;             // [ffn_hidden][hidden]
  compute::PackedMatrix down;                 // [hidden][ffn_hidden]
};

struct Weights {
  AlignedBuffer memory;  // of all matrices: one piece, so that the system can use large pages
  compute::PackedMatrix embedding;  // [vocab][hidden]; also the head when that is tied
  compute::PackedMatrix untied_head;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;   // [hidden]
  std::vector<float> rope_factors;  // [rope_dims / 2] divisors of the frequencies; may be empty

  const compute::PackedMatrix& head() const {
    return untied_head.empty() ? embedding : untied_head;
  }
  size_t bytes() const;  // exactly what the packed matrices hold
};

// Called with the fraction of the work done, 0 … 1.
using ProgressFunction = std::function<void(double fraction)>;

// Bytes that LoadWeights will allocate. Errors: as LoadWeights, before anything is allocated.
Result<size_t> PlanWeightBytes(const Gguf& gguf, const ModelConfig& config);

// Errors: kNotFound (tensor), kCorrupt (shape), kUnsupported (type), kOutOfMemory.
Result<Weights> LoadWeights(const Gguf& gguf, const ModelConfig& config, ThreadTeam* team,
                            const ProgressFunction& progress);

}  // namespace kvern::model
