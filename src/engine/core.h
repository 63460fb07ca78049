// Core: the engine as a state machine, one step at a time.
//
// Step() is schedule → execute → commit. Between steps requests arrive (Submit) and are cancelled.
// It has no thread, reads no clock but the one that it is given, and draws no random numbers: the
// same calls at the same times make the same decisions. The public Engine (engine/service.cc) runs
// it on a thread; tests and simulations call it themselves.
//
// Not thread-safe. The parts must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/proposer.h"
#include "kvern/engine.h"
#include "kvern/kv.h"
#include "text/tokenizer.h"

namespace kvern::engine {

enum class RequestId : uint64_t {};

// Where one request's answer goes. Called from Submit(), Cancel() and Step(),
// and must not call the core.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  // Whether it can take a chunk now. Asked at every step: a request whose sink has no room pauses.
  virtual bool HasRoom() const { return true; }

  // The chunk is valid during the call. May throw: the request fails then, alone.
  virtual void Take(const Chunk& chunk) = 0;

  // The last call for this request, after the last chunk of every completion (or after Take() has
  // thrown).
  virtual void Finish(Report report) = 0;
};

struct CoreParts {
  Executor* executor;
  kv::KvCache* cache;
  const Clock* clock;
  const text::Tokenizer* tokenizer = nullptr;  // none: chunks have no text, stop texts are refused
  Proposer* proposer = nullptr;                // none: no speculation
  kv::NamespaceSpec ns = {};                   // without tenant
  std::vector<TokenId> end_tokens = {};        // end a completion
};

class Core {
 public:
  // Errors: kInvalidArgument, naming the option.
  static Result<std::unique_ptr<Core>> Make(CoreParts parts, const SchedulerOptions& scheduler,
                                            const SpeculationOptions& speculation);
  ~Core();  // cancels what is live
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // What Submit() refuses a request for, whoever else is there: kInvalidArgument, naming the field;
  // kOutOfMemory for what can never fit, with the numbers. Any thread.
  Status Check(const Request& request) const;

  // `request.tokens` is the prompt, `request.seed` is set; `text` and `on_chunk` are not read.
  // `sink` must live until its Finish(), which may come during this call. Times are counted from
  // `arrival_us`; none: now. Errors: those of Check(); kOverloaded.
  Result<RequestId> Submit(Request request, ReplySink* sink,
                           std::optional<int64_t> arrival_us = {});

  // Its completions finish now with kCancelled, and hold nothing. Unknown ids are ignored: it may
  // have finished.
  void Cancel(RequestId id);

  // One step. False: nothing was computed, and nothing will be until a call comes in, a sink has
  // room again, or the time of next_wake_us() (a deadline, a load from a tier) has come.
  bool Step();

  bool idle() const;  // no request is live
  std::optional<int64_t> next_wake_us() const;

  // As Report of a live request is now. None: it has finished.
  std::optional<Report> report(RequestId id) const;
  EngineStats stats() const;

  // The namespace of a request's prompts. Errors: those of KvCache::OpenNamespace.
  Result<kv::NamespaceId> NamespaceOf(const Request& request);

  // Aborts with a message if an invariant does not hold; for tests.
  void CheckInvariants() const;

 private:
  class Impl;
  explicit Core(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::engine
