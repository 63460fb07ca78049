#include "cli/engine_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>
#include <utility>

#include "cli/default_model.h"
#include "cli/progress.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kMaxThreads = 256;

std::string Names(auto&& rows) {
  std::string names;
  for (const auto& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

Status CheckRange(const char* flag, std::optional<uint32_t> value, uint32_t low, uint32_t high) {
  if (!value || (*value >= low && *value <= high)) return {};
  return Errorf(ErrorCode::kInvalidArgument, "{}: {} is outside {} … {}", flag, *value, low, high);
}

}  // namespace

void AddEngineFlags(CLI::App& app, EngineFlags& flags) {
  app.add_option("-m,--model", flags.model, "Model file (default: the fetched model)");
  app.add_option("-c,--ctx-size", flags.context,
                 "Context in tokens; 0 is what the model was trained on (default: 4096, or that "
                 "if it is less)");
  app.add_option("-t,--threads", flags.threads, "Threads (default: one per core)");
  AddStrategyFlag(app, flags);
  AddComputeFlags(app, flags);
}

void AddComputeFlags(CLI::App& app, EngineFlags& flags) {
  const std::string types = Names(compute::KvDtypes()) + "; q8_0 means q8r, q4_0 q4r";
  app.add_option("-b,--batch-size", flags.batch, "Prompt tokens computed per step")
      ->capture_default_str();
  app.add_option("--cache-type-k", flags.k_dtype,
                 "Type of K in the cache: " + types + " (short: -ctk)")
      ->capture_default_str();
  app.add_option("--cache-type-v", flags.v_dtype,
                 "Type of V in the cache: " + types + " (short: -ctv)")
      ->capture_default_str();
  app.add_option("--isa", flags.isa,
                 "Instruction set of the kernels: auto, " + Names(compute::Isas()))
      ->capture_default_str();
}

void AddStrategyFlag(CLI::App& app, EngineFlags& flags) {
  app.add_option("--kv", flags.strategy, "Where K/V live: " + Names(kv::Strategies()))
      ->capture_default_str();
}

Result<compute::KvDtype> ParseKvDtype(const char* flag, const std::string& name) {
  const compute::KvDtypeTraits* traits = compute::FindKvDtype(name);
  if (traits != nullptr) return traits->dtype;
  return Errorf(ErrorCode::kInvalidArgument, "{}: unknown type '{}': use one of {}", flag, name,
                Names(compute::KvDtypes()));
}

std::vector<std::string> KvDtypeNotes(const EngineFlags& flags) {
  std::vector<std::string> notes;
  for (const std::string& name : {flags.k_dtype, flags.v_dtype}) {
    const compute::KvDtypeTraits* traits = compute::FindKvDtype(name);
    if (traits == nullptr || traits->alias != name) continue;
    const std::string note =
        fmt::format("{} is stored as {}: {}", name, traits->name, traits->help);
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  }
  return notes;
}

Result<const kv::Strategy*> StrategyFromFlags(const EngineFlags& flags) {
  auto strategy = kv::FindStrategy(flags.strategy);
  if (!strategy.ok()) {
    return Errorf(ErrorCode::kInvalidArgument, "--kv: {}", strategy.error().message);
  }
  return *strategy;
}

Result<engine::OpenOptions> OptionsFromFlags(const EngineFlags& flags) {
  KVERN_RETURN_IF_ERROR(CheckRange("-t", flags.threads, 1, kMaxThreads));
  KVERN_RETURN_IF_ERROR(CheckRange("-b", flags.batch, 1, 1 << 16));
  KVERN_RETURN_IF_ERROR(CheckRange("-c", flags.context, 0, 1 << 20));
  engine::OpenOptions options;
  KVERN_ASSIGN_OR_RETURN(options.k_dtype, ParseKvDtype("-ctk", flags.k_dtype));
  KVERN_ASSIGN_OR_RETURN(options.v_dtype, ParseKvDtype("-ctv", flags.v_dtype));
  KVERN_RETURN_IF_ERROR(StrategyFromFlags(flags));
  KVERN_ASSIGN_OR_RETURN(options.path, FindModel(flags.model));
  options.context = flags.context;
  options.num_threads = flags.threads.value_or(std::max(1u, std::thread::hardware_concurrency()));
  options.isa = flags.isa;
  options.max_step_tokens = flags.batch;
  return options;
}

Status SetEngineOptions(const EngineFlags& flags, EngineOptions& options) {
  KVERN_ASSIGN_OR_RETURN(options.model.path, FindModel(flags.model));
  options.model.context = flags.context;
  options.model.num_threads = flags.threads.value_or(0);
  options.model.k_dtype = flags.k_dtype;
  options.model.v_dtype = flags.v_dtype;
  options.model.isa = flags.isa;
  options.scheduler.step_tokens = flags.batch;
  return {};
}

Result<engine::OpenedModel> OpenWithProgress(engine::OpenOptions options) {
  Progress progress("Loading model");
  options.progress = [&progress](double fraction) { progress.Update(fraction); };
  return engine::OpenedModel::Open(options);
}

Result<engine::OpenedModel> OpenFromFlags(const EngineFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(engine::OpenOptions options, OptionsFromFlags(flags));
  return OpenWithProgress(std::move(options));
}

}  // namespace kvern::cli
