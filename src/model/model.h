// Model: configuration, weights and RoPE table of one loaded file.
//
// Immutable after Load; safe from any thread. Tokenizer and chat template are loaded apart
// (vocab_loader.h), because not everyone who computes needs them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/thread_team.h"
#include "compute/rope.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/weights.h"

namespace kvern::model {

class Model {
 public:
  // Loads the weights for sequences of up to `max_positions` tokens. Errors: those of the parts.
  static Result<Model> Load(const Gguf& gguf, uint32_t max_positions, ThreadTeam* team,
                            const ProgressFunction& progress = {});

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const compute::RopeTable& rope() const { return rope_; }
  uint32_t max_positions() const { return max_positions_; }

 private:
  Model(ModelConfig config, Weights weights, compute::RopeTable rope, uint32_t max_positions);

  ModelConfig config_;
  Weights weights_;
  compute::RopeTable rope_;
  uint32_t max_positions_;
};

}  // namespace kvern::model
