// EngineFlags: the flags that every command which computes has, and how they open a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "compute/kv_dtype.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"

namespace CLI {
class App;
}

namespace kvern::cli {

struct EngineFlags {
  std::string model;
  std::optional<uint32_t> context;
  std::optional<uint32_t> threads;  // default: one per core
  uint32_t batch = 512;             // tokens of a prefill step
  std::string strategy = "paged";
  std::string k_dtype = "f16";
  std::string v_dtype = "f16";
  std::string isa = "auto";
};

void AddEngineFlags(CLI::App& app, EngineFlags& flags);

// Opens the model that the flags name, with a progress line on a terminal. Errors: kInvalidArgument
// names the flag; the rest are OpenedModel::Open's.
Result<engine::OpenedModel> OpenFromFlags(const EngineFlags& flags);

// The type that `flag` (-ctk or -ctv) names. Errors: kInvalidArgument, naming those that exist.
Result<compute::KvDtype> ParseKvDtype(const char* flag, const std::string& name);

// The strategy that --kv names.
Result<const kv::Strategy*> StrategyFromFlags(const EngineFlags& flags);

}  // namespace kvern::cli
