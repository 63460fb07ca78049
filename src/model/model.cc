#include "model/model.h"

#include <utility>

#include "base/fp_env.h"
#include "model/arch/architecture.h"

namespace kvern::model {

Model::Model(ModelConfig config, Weights weights, compute::RopeTable rope, uint32_t max_positions)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      rope_(std::move(rope)),
      max_positions_(max_positions) {}

Result<Model> Model::Load(const Gguf& gguf, uint32_t max_positions, ThreadTeam* team,
                          const ProgressFunction& progress) {
  const ScopedFpEnv fp_env;
  KVERN_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(gguf));
  KVERN_ASSIGN_OR_RETURN(Weights weights, LoadWeights(gguf, config, team, progress));
  auto rope = compute::RopeTable::Create({.dims = config.rope_dims,
                                          .base = config.rope_base,
                                          .linear_factor = config.rope_linear_factor,
                                          .factors = weights.rope_factors},
                                         max_positions);
  if (!rope.ok()) {
    return Errorf(rope.error().code, "{}: RoPE: {}", gguf.path(), rope.error().message);
  }
  return Model(std::move(config), std::move(weights), std::move(*rope), max_positions);
}

}  // namespace kvern::model
