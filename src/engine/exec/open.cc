#include "engine/exec/open.h"

#include <algorithm>
#include <utility>

#include "base/memory_info.h"
#include "engine/exec/cpu.h"
#include "engine/exec/fingerprint.h"
#include "model/arch/architecture.h"
#include "model/vocab_loader.h"

namespace kvern::engine {
namespace {

// Copy-on-write and a forked sequence's open block need a little more than the tokens.
constexpr uint32_t kSpareBlocks = 8;

size_t PoolBlocks(size_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens + kSpareBlocks;
}

double MiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Result<uint32_t> ChooseContext(const OpenOptions& options, const model::ModelConfig& config) {
  if (!options.context) return std::min(kDefaultContext, config.trained_context);
  if (*options.context == 0) return config.trained_context;
  return *options.context;
}

Status CheckMemory(const model::Gguf& gguf, size_t weight_bytes, size_t kv_bytes) {
  const auto memory = ReadMemoryInfo();
  if (!memory.ok()) return {};  // an unknown machine: allocation itself will tell
  const size_t needed = weight_bytes + kv_bytes;
  if (needed <= memory->available_bytes) return {};
  return Errorf(ErrorCode::kOutOfMemory,
                "{}: needs {:.0f} MiB for weights and {:.0f} MiB for the KV cache, but {:.0f} MiB "
                "of memory are available: lower -c or choose a smaller model",
                gguf.path(), MiB(weight_bytes), MiB(kv_bytes), MiB(memory->available_bytes));
}

}  // namespace

Result<OpenedModel> OpenedModel::Open(const OpenOptions& options) {
  KVERN_ASSIGN_OR_RETURN(model::Gguf gguf, model::Gguf::Open(options.path));
  return Open(std::move(gguf), options);
}

Result<OpenedModel> OpenedModel::Open(model::Gguf gguf, const OpenOptions& options) {
  OpenedModel opened;
  KVERN_ASSIGN_OR_RETURN(opened.isa_, compute::SelectIsa(options.isa));
  opened.gguf_ = std::make_unique<model::Gguf>(std::move(gguf));
  KVERN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ReadConfig(*opened.gguf_));
  KVERN_ASSIGN_OR_RETURN(opened.tokenizer_, model::LoadTokenizer(*opened.gguf_));
  KVERN_ASSIGN_OR_RETURN(const uint32_t context, ChooseContext(options, config));
  opened.layout_ = MakeKvLayout(config, options.k_dtype, options.v_dtype);
  const size_t kv_bytes =
      PoolBlocks(options.pool_tokens.value_or(options.pool_contexts * context)) *
      opened.layout_.block_bytes();
  KVERN_ASSIGN_OR_RETURN(const size_t weight_bytes, model::PlanWeightBytes(*opened.gguf_, config));
  KVERN_RETURN_IF_ERROR(CheckMemory(*opened.gguf_, weight_bytes, kv_bytes));

  opened.team_ = options.team;
  if (opened.team_ == nullptr) {
    opened.own_team_ = std::make_unique<ThreadTeam>(options.num_threads);
    opened.team_ = opened.own_team_.get();
  }
  opened.kv_spec_ = MakeNamespaceSpec(*opened.gguf_, config, opened.layout_, *opened.team_);
  KVERN_ASSIGN_OR_RETURN(model::Model model, model::Model::Load(*opened.gguf_, context,
                                                                opened.team_, options.progress));
  opened.model_ = std::make_unique<model::Model>(std::move(model));
  opened.store_ = std::make_unique<kv::HostBlockStore>(MakeCopyRows(opened.layout_));
  kv::KvCacheOptions kv_options;
  kv_options.groups = {MakeGroupSpec(opened.layout_)};
  kv_options.budget_bytes = kv_bytes;
  kv_options.eviction = options.eviction;
  kv_options.span_bytes_per_tenant =
      static_cast<size_t>(options.span_share * static_cast<double>(kv_bytes));
  KVERN_ASSIGN_OR_RETURN(opened.kv_cache_,
                         kv::KvCache::Make(std::move(kv_options), opened.store_.get()));
  KVERN_ASSIGN_OR_RETURN(opened.kv_namespace_, opened.kv_cache_->OpenNamespace(opened.kv_spec_));
  KVERN_ASSIGN_OR_RETURN(opened.executor_,
                         MakeCpuExecutor(opened.model_.get(), opened.isa_, opened.team_,
                                         opened.layout_, options.max_step_tokens));
  return opened;
}

MemoryPlan OpenedModel::memory() const {
  return {.weight_bytes = executor_->info().weight_bytes,
          .kv_bytes = kv_cache_->stats().budget_bytes,
          .scratch_bytes = executor_->info().scratch_bytes,
          .rope_bytes = model_->rope().bytes()};
}

kv::CacheOptions OpenedModel::MakeCacheOptions() {
  return {.cache = kv_cache_.get(),
          .store = store_.get(),
          .ns = kv_namespace_,
          .group = {},
          .max_tokens = context(),
          .on_event = {}};
}

GenerationOptions OpenedModel::MakeGenerationOptions(const kv::Strategy& strategy) {
  GenerationOptions options;
  options.strategy = &strategy;
  options.cache = MakeCacheOptions();
  options.token_bytes = layout_.token_bytes();
  options.prefill_chunk = executor_->info().max_step_tokens;
  const auto end = tokenizer_->end_of_generation();
  options.end_tokens.assign(end.begin(), end.end());
  return options;
}

}  // namespace kvern::engine
