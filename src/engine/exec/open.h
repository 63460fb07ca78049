// OpenModel: everything that runs one model on this machine, wired together in one place.
//
// Checks that it fits in memory before loading anything, and keeps the parts alive in the right
// order. Not thread-safe; movable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/thread_team.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"
#include "engine/executor.h"
#include "engine/generation.h"
#include "kv/strategy.h"
#include "kvern/engine.h"
#include "kvern/kv.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/vocab_loader.h"

namespace kvern::engine {

inline constexpr uint32_t kDefaultContext = 4096;

struct OpenOptions {
  std::string path;
  // Tokens of a sequence. None: kDefaultContext, or what the model was trained on if that is less.
  // 0: what the model was trained on.
  std::optional<uint32_t> context;
  // Tokens that the KV cache has room for, of all sequences together. None: `pool_contexts`
  // contexts.
  std::optional<size_t> pool_tokens;
  size_t pool_contexts = 1;
  size_t num_threads = 1;
  // Computes on these threads instead, which must outlive the model: for models that take turns.
  ThreadTeam* team = nullptr;
  compute::KvDtype k_dtype = compute::KvDtype::kF16;
  compute::KvDtype v_dtype = compute::KvDtype::kF16;
  std::string isa = "auto";
  uint32_t max_step_tokens = 512;
  std::string eviction = "lru";      // a row of kv/policy/table.cc
  double span_share = 0;             // of the KV memory: what spans of one tenant may keep
  model::ProgressFunction progress;  // of loading; may be empty
};

// Bytes that the parts hold, and were planned to hold.
struct MemoryPlan {
  size_t weight_bytes;
  size_t kv_bytes;  // of a full KV cache
  size_t scratch_bytes;
  size_t rope_bytes;
};

class OpenedModel {
 public:
  // Errors: those of the parts, and kOutOfMemory with the numbers when it cannot fit.
  static Result<OpenedModel> Open(const OpenOptions& options);

  // The same for a file that is open already; options.path is not read.
  static Result<OpenedModel> Open(model::Gguf gguf, const OpenOptions& options);

  OpenedModel(OpenedModel&&) = default;
  OpenedModel& operator=(OpenedModel&&) = delete;

  const model::Gguf& gguf() const { return *gguf_; }
  const model::ModelConfig& config() const { return model_->config(); }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const compute::KvLayout& layout() const { return layout_; }
  const compute::Isa& isa() const { return *isa_; }
  Executor& executor() { return *executor_; }
  kv::KvCache& kv_cache() { return *kv_cache_; }
  // Of this model's texts, whose blocks depend on it and nothing else (rule K12).
  kv::NamespaceId kv_namespace() const { return kv_namespace_; }
  const kv::NamespaceSpec& kv_namespace_spec() const { return kv_spec_; }
  ThreadTeam& team() { return *team_; }
  uint32_t context() const { return model_->max_positions(); }
  MemoryPlan memory() const;

  // A sequence of the whole context, whatever the strategy.
  kv::CacheOptions MakeCacheOptions();

  // A generation of this model: strategy, context and stop tokens filled in.
  GenerationOptions MakeGenerationOptions(const kv::Strategy& strategy);

 private:
  OpenedModel() = default;

  const compute::Isa* isa_ = nullptr;
  compute::KvLayout layout_{};
  std::unique_ptr<ThreadTeam> own_team_;  // unless it was given one
  ThreadTeam* team_ = nullptr;
  std::unique_ptr<model::Gguf> gguf_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kv::BlockStore> store_;
  std::unique_ptr<kv::KvCache> kv_cache_;
  kv::NamespaceSpec kv_spec_;
  kv::NamespaceId kv_namespace_{};
  std::unique_ptr<Executor> executor_;
};

// An engine on a model that is open already, which must outlive it: steps of the executor's size,
// no speculation. See Engine::Open() for engines that serve. Errors: those of the parts.
Result<std::unique_ptr<Engine>> MakeEngine(OpenedModel* model);

}  // namespace kvern::engine
