// The public Engine (kvern/engine.h) around a Core: a thread that steps it, replies that hold its
// chunks until they are read, and receipts. Engine::Open() is in engine/exec/engine.cc; this makes
// an engine of any parts, so that tests and simulations need no model.
//
// Requests are checked and tokenized on their callers' threads, and enter the core between two
// steps. Submit() waits for that only where the core may refuse them because too many wait.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/receipt.h"
#include "kvern/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvern::engine {

struct EngineParts {
  CoreParts core;
  std::shared_ptr<void> owner = {};  // of what `core` points to; may be null
  std::string model_name = {};
  std::string k_dtype = {};
  std::string v_dtype = {};
  std::string chat_template = {};  // Jinja source; empty: the model has none
  size_t kv_bytes_per_token = 0;
  // Of what only kernels know; may be empty.
  std::function<Status(const SamplingParams&)> check_sampling = {};
};

}  // namespace kvern::engine

namespace kvern {

struct EngineAccess {
  // Errors: those of Core::Make and of the fingerprint.
  static Result<std::unique_ptr<Engine>> Make(engine::EngineParts parts,
                                              const SchedulerOptions& scheduler,
                                              const SpeculationOptions& speculation);

  // The reports of all that is live, as it is between two steps. `done` runs on the engine's
  // thread: it must be brief, and may not throw. It is dropped where the engine ends first.
  static void AskReports(Engine& engine, std::function<void(std::vector<Report>)> done);

  // Evicts what nobody holds of the texts that a request like `owner` may find; null: of all.
  // `done` is told how many blocks went, as above.
  static void AskDropCached(Engine& engine, const Request* owner,
                            std::function<void(size_t num_blocks)> done);

  // Spans of such a request's texts that begin like `tokens` end soon.
  static void EndSpan(Engine& engine, const Request& owner, std::vector<TokenId> tokens);

  // What tenants may have of the KV memory, and must be left; those that are not named have no
  // bounds. Waits for the step under way. Errors: those of KvCache::SetQuotas.
  static Status SetQuotas(Engine& engine, std::vector<kv::AccountQuota> by_tenant);
  static kv::Quota QuotaOf(const Engine& engine, const std::string& tenant);

  // Its cache, for what may be read from any thread; and the namespace of such requests there.
  // None: there was no such request yet.
  static const kv::KvCache& CacheOf(const Engine& engine);
  static std::optional<kv::NamespaceId> FindNamespace(const Engine& engine, const Request& owner);

  // What receipts say of the model.
  static const engine::ReceiptModel& ModelOf(const Engine& engine);

  // For protocols, whose messages hold more than roles and contents. The tokenizer may be null, the
  // template kUnsupported; both live as long as the engine.
  static const text::Tokenizer* TokenizerOf(const Engine& engine);
  static const Result<text::ChatTemplate>& ChatTemplateOf(const Engine& engine);
  static const std::string& TemplateSourceOf(const Engine& engine);  // empty: none
};

}  // namespace kvern
