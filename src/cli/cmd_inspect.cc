// kvern inspect: metadata and tensors of a model file, and what a token costs in the KV cache.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "compute/kv_dtype.h"
#include "compute/kv_layout.h"
#include "model/arch/architecture.h"
#include "model/gguf.h"
#include "model/gguf_describe.h"

namespace kvern::cli {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false;
};

std::vector<model::KvCost> KvCosts(const model::ModelConfig& config) {
  std::vector<model::KvCost> costs;
  for (const compute::KvDtypeTraits& dtype : compute::KvDtypes()) {
    const compute::KvLayout layout{.num_layers = config.num_layers,
                                   .num_kv_heads = config.num_kv_heads,
                                   .head_dim = config.head_dim,
                                   .k_dtype = dtype.dtype,
                                   .v_dtype = dtype.dtype};
    costs.push_back({std::string(dtype.name), layout.token_bytes()});
  }
  return costs;
}

Status Inspect(const InspectFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model));
  KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Open(path));
  // A model that Kvern cannot run can be looked at all the same.
  const auto config = model::ReadConfig(gguf);
  const auto costs = config.ok() ? KvCosts(*config) : std::vector<model::KvCost>();
  fmt::print("{}",
             flags.json ? model::DescribeJson(gguf, costs) : model::DescribeText(gguf, costs));
  if (!config.ok())
    fmt::print(stderr, "kvern: cannot run this model: {}\n", config.error().message);
  return {};
}

}  // namespace

Action DeclareInspect(CLI::App& app) {
  const auto flags = std::make_shared<InspectFlags>();
  app.add_option("MODEL,-m,--model", flags->model, "Model file (default: the fetched model)");
  app.add_flag("--json", flags->json, "Print JSON");
  return [flags] { return Inspect(*flags); };
}

}  // namespace kvern::cli
