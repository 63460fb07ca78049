// EngineFlags: the flags that every command which computes has, and how they open a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/kv_dtype.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"
#include "kvern/engine.h"

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

// Parts of them, for commands that have lists of models and threads: -b -ctk -ctv --isa, and --kv.
void AddComputeFlags(CLI::App& app, EngineFlags& flags);
void AddStrategyFlag(CLI::App& app, EngineFlags& flags);

// What Open() is told. Errors: kInvalidArgument names the flag; kNotFound where there is no model.
Result<engine::OpenOptions> OptionsFromFlags(const EngineFlags& flags);

// Sets what the flags say of the options of the public engine: its model and the tokens of a step.
// Errors: kNotFound where there is no model.
Status SetEngineOptions(const EngineFlags& flags, EngineOptions& options);

// Opens a model with a progress line on a terminal. Errors: OpenedModel::Open's.
Result<engine::OpenedModel> OpenWithProgress(engine::OpenOptions options);

// Both in one. Errors: theirs.
Result<engine::OpenedModel> OpenFromFlags(const EngineFlags& flags);

// The type that `flag` (-ctk or -ctv) names. Errors: kInvalidArgument, naming those that exist.
Result<compute::KvDtype> ParseKvDtype(const char* flag, const std::string& name);

// What llama.cpp's names among -ctk and -ctv mean here, a line for each that was given.
std::vector<std::string> KvDtypeNotes(const EngineFlags& flags);

// The strategy that --kv names.
Result<const kv::Strategy*> StrategyFromFlags(const EngineFlags& flags);

}  // namespace kvern::cli
