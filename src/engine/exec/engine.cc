// Engine::Open: an engine on a model file.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "compute/kv_dtype.h"
#include "compute/sampling.h"
#include "engine/exec/open.h"
#include "engine/policy.h"
#include "engine/service.h"
#include "engine/spec/table.h"
#include "kv/policy.h"
#include "kvern/engine.h"

namespace kvern {
namespace {

using engine::OpenedModel;
using engine::OpenOptions;

constexpr size_t kMaxThreads = 256;
constexpr size_t kMaxStepTokens = 1 << 16;
constexpr size_t kContextsOfCache = 4;

// What an engine computes with. Later members use earlier ones.
struct OpenedEngine {
  explicit OpenedEngine(OpenedModel opened) : model(std::move(opened)) {}

  OpenedModel model;
  SteadyClock clock;
  std::unique_ptr<engine::Proposer> proposer;
};

Result<compute::KvDtype> ParseDtype(const char* field, const std::string& name) {
  if (const auto* const traits = compute::FindKvDtype(name)) return traits->dtype;
  std::string names;
  for (const auto& traits : compute::KvDtypes()) {
    names += (names.empty() ? "" : ", ") + std::string(traits.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "model.{}: unknown type '{}': use one of {}", field,
                name, names);
}

Status CheckRange(const char* field, size_t value, size_t low, size_t high) {
  if (value >= low && value <= high) return {};
  return Errorf(ErrorCode::kInvalidArgument, "{}: {} is outside {} … {}", field, value, low, high);
}

Status Name(const char* field, Status status) {
  if (status.ok()) return status;
  return Errorf(status.error().code, "{}: {}", field, status.error().message);
}

template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

// What is wrong with the options is told before anything is loaded.
Result<OpenOptions> CheckOptions(const EngineOptions& options) {
  const ModelOptions& model = options.model;
  if (model.path.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "model.path: is empty: name a GGUF file");
  }
  OpenOptions open;
  open.path = model.path;
  open.context = model.context;
  KVERN_ASSIGN_OR_RETURN(open.k_dtype, ParseDtype("k_dtype", model.k_dtype));
  KVERN_ASSIGN_OR_RETURN(open.v_dtype, ParseDtype("v_dtype", model.v_dtype));
  KVERN_RETURN_IF_ERROR(CheckRange("model.num_threads", model.num_threads, 0, kMaxThreads));
  open.num_threads = model.num_threads;
  if (open.num_threads == 0) {
    open.num_threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
  }
  if (model.kv_tokens) {
    KVERN_RETURN_IF_ERROR(CheckRange("model.kv_tokens", *model.kv_tokens, 1, SIZE_MAX >> 20));
  }
  open.pool_tokens = model.kv_tokens;
  open.pool_contexts = kContextsOfCache;
  open.isa = model.isa;
  KVERN_RETURN_IF_ERROR(Name("model.isa", StatusOf(compute::SelectIsa(model.isa))));
  open.eviction = model.eviction;
  KVERN_RETURN_IF_ERROR(Name("model.eviction", StatusOf(kv::FindPolicy(model.eviction))));
  if (!(model.span_share >= 0 && model.span_share <= 1)) {
    return Errorf(ErrorCode::kInvalidArgument, "model.span_share: {} is outside 0 … 1",
                  model.span_share);
  }
  open.span_share = model.span_share;
  const SchedulerOptions& scheduler = options.scheduler;
  KVERN_RETURN_IF_ERROR(
      CheckRange("scheduler.step_tokens", scheduler.step_tokens, 1, kMaxStepTokens));
  open.max_step_tokens = static_cast<uint32_t>(scheduler.step_tokens);
  KVERN_RETURN_IF_ERROR(StatusOf(engine::FindSchedulingPolicy(scheduler.policy)));
  return open;
}

// A draft model computes on the target's threads, as they take turns.
Result<engine::DraftModel> OpenDraft(const std::string& path, OpenOptions open,
                                     OpenedModel& target) {
  open.path = path;
  open.context = target.context();
  open.team = &target.team();
  auto opened = OpenedModel::Open(open);
  KVERN_RETURN_IF_ERROR(Name("speculation.draft_model", StatusOf(opened)));
  const auto model = std::make_shared<OpenedModel>(*std::move(opened));
  return engine::DraftModel{.owner = model,
                            .executor = &model->executor(),
                            .cache = &model->kv_cache(),
                            .ns = model->kv_namespace(),
                            .tokenizer = &model->tokenizer()};
}

Result<std::unique_ptr<engine::Proposer>> OpenProposer(const EngineOptions& options,
                                                       const OpenOptions& open,
                                                       OpenedModel& target) {
  const engine::ProposerParts parts{
      .target = {.vocab_size = target.config().vocab_size, .tokenizer = &target.tokenizer()},
      .open_draft = [&](const std::string& path) { return OpenDraft(path, open, target); }};
  return engine::MakeProposer(options.speculation, parts);
}

// `owner` keeps the model alive, and clock and proposer with it.
Result<engine::EngineParts> MakeParts(OpenedModel& model, const Clock* clock,
                                      engine::Proposer* proposer, std::shared_ptr<void> owner) {
  KVERN_ASSIGN_OR_RETURN(const auto chat_template,
                         model.gguf().FindString("tokenizer.chat_template"));
  const auto end = model.tokenizer().end_of_generation();
  return engine::EngineParts{
      .core = {.executor = &model.executor(),
               .cache = &model.kv_cache(),
               .clock = clock,
               .tokenizer = &model.tokenizer(),
               .proposer = proposer,
               .ns = model.kv_namespace_spec(),
               .end_tokens = {end.begin(), end.end()}},
      .owner = std::move(owner),
      .model_name = model.config().name,
      .k_dtype = std::string(GetKvDtype(model.layout().k_dtype).name),
      .v_dtype = std::string(GetKvDtype(model.layout().v_dtype).name),
      .chat_template = std::string(chat_template.value_or("")),
      .kv_bytes_per_token = model.layout().token_bytes(),
      .check_sampling = [vocab_size = model.config().vocab_size](const SamplingParams& params) {
        return compute::ValidateSamplingParams(params, vocab_size);
      }};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  KVERN_ASSIGN_OR_RETURN(const OpenOptions open, CheckOptions(options));
  KVERN_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(open));
  const auto opened = std::make_shared<OpenedEngine>(std::move(model));
  KVERN_ASSIGN_OR_RETURN(opened->proposer, OpenProposer(options, open, opened->model));
  KVERN_ASSIGN_OR_RETURN(engine::EngineParts parts,
                         MakeParts(opened->model, &opened->clock, opened->proposer.get(), opened));
  return EngineAccess::Make(std::move(parts), options.scheduler, options.speculation);
}

Result<std::unique_ptr<Engine>> engine::MakeEngine(OpenedModel* model) {
  const auto clock = std::make_shared<SteadyClock>();
  KVERN_ASSIGN_OR_RETURN(EngineParts parts, MakeParts(*model, clock.get(), nullptr, clock));
  SchedulerOptions scheduler;
  scheduler.step_tokens = model->executor().info().max_step_tokens;
  return EngineAccess::Make(std::move(parts), scheduler, {});
}

}  // namespace kvern
