// The Kvern engine: many requests at once on one model, each answered as if it were alone.
//
//   Result<std::unique_ptr<Engine>> engine = Engine::Open({.model = {.path = "model.gguf"}});
//   Result<Reply> reply = (*engine)->Submit({.text = "Once upon a time", .max_tokens = 64});
//   while (std::optional<Chunk> chunk = reply->Next()) std::cout << chunk->text;
//
// What a request is answered, tokens and logprobs, depends on the request, its seed and the model
// alone: not on who else is served, the cache, the options here, threads or instruction set.
//
// Threads: Engine and Reply::Cancel() may be used from any thread; the rest of a Reply belongs to
// one reader at a time. The engine computes on threads of its own. Destroying an Engine cancels
// what is live; replies stay readable after it. Times are in microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/ids.h"
#include "kvern/kv.h"
#include "kvern/kv_report.h"
#include "kvern/result.h"
#include "kvern/sampling.h"

namespace kvern {

enum class FinishReason {
  kStop,       // the model ended its turn, or said a stop
  kLength,     // max_tokens, or the context is full
  kCancelled,  // by the reader, or the engine was destroyed
  kDeadline,
  kFailed,  // Report::error says why
};
std::string_view ToString(FinishReason reason);  // "stop", "length", …

// The first so many prompt tokens are kept for `ttl_us` after they were computed, as far as the
// tenant's budget (ModelOptions::span_share) goes; Report::spans says how far that was.
struct CacheSpan {
  size_t num_tokens = 0;
  int64_t ttl_us = 300'000'000;
};

// How a request uses the prefix cache. Never changes the answer.
struct CacheUse {
  bool use = true;      // false: takes nothing from others, and gives them nothing
  bool publish = true;  // false: others cannot take what this one computes
  kv::Retention retention = kv::Retention::kNormal;
  std::vector<CacheSpan> spans = {};
};

struct Chunk;

struct Request {
  // The prompt: text (special tokens in it are text; the model's BOS is added), or its tokens.
  std::string text = {};
  std::vector<TokenId> tokens = {};

  SamplingParams sampling = {};
  std::optional<uint64_t> seed = {};      // none: drawn at arrival; Report::seed has it
  size_t n = 1;                           // completions of the prompt
  std::optional<size_t> max_tokens = {};  // of a completion; none: what the context allows
  std::vector<std::string> stop = {};     // texts that end a completion, and are not part of it
  std::vector<TokenId> stop_tokens = {};  // the same for tokens
  bool ignore_end = false;                // goes on after end-of-generation tokens

  int priority = 0;                         // higher is better
  std::optional<int64_t> deadline_us = {};  // after Submit(); what is there by then is the answer
  std::string tenant = {};                  // tenants get equal shares of the engine
  // Who shares cached text: those of the group. None: those of the tenant, whose text no group
  // sees.
  std::optional<std::string> cache_group = {};
  // Separates the tenant's own prompts further: those of equal salts share, and with no group.
  std::optional<std::string> cache_salt = {};
  CacheUse cache = {};

  // A reader that is so many chunks behind makes its request pause. 0: no bound.
  size_t max_queued_chunks = 256;
  // Called on the engine's thread instead of queueing for Next(); everybody waits for it. What it
  // throws fails its request alone.
  std::function<void(const Chunk&)> on_chunk = {};
  // Called once on the engine's thread when all has ended, however it did: finished() is true if
  // nothing is queued, and Wait() waits no more. Not called where Submit() failed or the Reply has
  // been destroyed. May not throw.
  std::function<void()> on_end = {};
};

// What one step brought one completion. The last chunk of a completion has `finish`.
struct Chunk {
  uint32_t completion = 0;  // 0 … n-1
  std::vector<SampledToken> tokens = {};
  // Whole characters that cannot become part of a stop text any more. Those of all chunks together
  // are the completion's text.
  std::string text = {};
  std::optional<FinishReason> finish = {};
};

// One thing that happened to a request, for its log.
struct LifecycleEvent {
  enum class Kind {
    kQueued,      // amount: prompt tokens
    kWaiting,     // for a prefix that another computes; amount: its end
    kLoading,     // from a tier; amount: tokens
    kAdmitted,    // amount: tokens found in the cache
    kPrefill,     // amount: tokens computed so far, at the end of a chunk
    kFirstToken,  // amount: the completion
    kForked,      // amount: the completion that began with another's blocks
    kPreempted,   // amount: tokens whose blocks were left to the cache
    kResumed,     // amount: tokens found again
    kPaused,      // the reader is behind
    kUnpaused,
    kSelfCheck,  // a full hit's last token was computed again and found equal; amount: position
    kFinished,   // amount: tokens of the completion
    kFailed,
  };
  Kind kind;
  int64_t time_us;  // since arrival
  uint32_t completion = 0;
  size_t amount = 0;
};
std::string_view ToString(LifecycleEvent::Kind kind);

// What a live request waits for.
enum class WaitCause {
  kTurn,    // max_running sequences, or the tokens of a step
  kMemory,  // blocks
  kShare,   // blocks: its tenant has as many as it may
  kPrefix,  // that another request computes
  kTier,    // a load
  kReader,  // who is behind
};
std::string_view ToString(WaitCause cause);  // "turn", …

// How a request fared. Prompt figures are those of completion 0.
struct Report {
  uint64_t id = 0;
  std::optional<Error> error = {};  // of a completion that failed
  uint64_t seed = 0;
  size_t prompt_tokens = 0;
  size_t completion_tokens = 0;  // of all completions
  kv::PromptSplit prompt = {};   // where its tokens came from; sums to prompt_tokens
  std::vector<kv::Miss> misses = {};
  size_t prefilled_tokens = 0;  // computed, of prompts; after preemption again
  size_t blocks_peak = 0;       // held at once, shared ones included
  size_t preemptions = 0;
  size_t drafted_tokens = 0;                // by speculation …
  size_t accepted_tokens = 0;               // … and how many of them were what the model said
  std::vector<kv::SpanGrant> spans = {};    // those of CacheUse, once the prompt is computed
  std::optional<int64_t> queue_us = {};     // until its first step
  std::optional<int64_t> ttft_us = {};      // until its first token
  std::optional<int64_t> total_us = {};     // until its end
  double tpot_us = 0;                       // between tokens after the first, mean
  std::optional<WaitCause> waits_for = {};  // none: it is computed, or has ended
  std::vector<LifecycleEvent> events = {};
  // JSON: fingerprint, request with its seed, finish reasons and digest of the answer (rule G7).
  // Once all completions have ended well: `kvern verify` replays it.
  std::string receipt = {};
};

// A finished completion.
struct Completion {
  std::vector<SampledToken> tokens;
  std::string text;
  FinishReason finish = FinishReason::kStop;
};

// All of an answer at once.
struct Answer {
  std::vector<Completion> completions;  // [n]
  Report report;
};

// One request's answer as it comes. Move-only; destruction cancels what has not finished.
class Reply {
 public:
  Reply(Reply&&) noexcept;
  Reply& operator=(Reply&&) noexcept;
  ~Reply();

  uint64_t id() const;

  // The next chunk; waits for it. None once every completion has finished.
  std::optional<Chunk> Next();
  // The same, but waits no longer than this; none then too (see finished()).
  std::optional<Chunk> Next(int64_t timeout_us);
  bool finished() const;  // and read to the end

  // Ends the request within one step; its chunks so far stay readable. Any thread.
  void Cancel();

  // As it is now.
  Report report() const;

  // Reads the rest and returns it all (without what Next() returned). An error only if all
  // completions failed.
  Result<Answer> Wait();

 private:
  friend class Engine;
  struct Impl;
  explicit Reply(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

struct ModelOptions {
  std::string path = {};  // of a GGUF
  // Tokens of a sequence. None: 4,096, or the model's if that is less; 0: the model's.
  std::optional<uint32_t> context = {};
  std::optional<size_t> kv_tokens = {};  // room of the KV cache; none: four contexts
  size_t num_threads = 0;                // 0: one per core
  std::string k_dtype = "f16";
  std::string v_dtype = "f16";
  std::string isa = "auto";
  std::string eviction = "lru";
  double span_share = 0.25;  // of the KV memory: what spans of one tenant may keep
};

struct SchedulerOptions {
  std::string policy = "fcfs";  // a row of engine/policy/table.cc
  size_t step_tokens = 512;     // of all slices of a step at most
  // Prefill takes as much of a step as leaves the time between tokens below this. 0: step_tokens.
  int64_t target_token_us = 0;
  size_t max_running = 256;        // sequences
  size_t max_waiting = 4096;       // requests; beyond it the least important is refused
  int64_t ageing_us = 10'000'000;  // waiting so long counts as one priority more
  double watermark = 0.01;         // share of the KV memory that admission leaves free for decoding
};

struct SpeculationOptions {
  std::string proposer = "none";  // a row of engine/spec/table.cc: none, ngram, draft
  size_t max_draft = 8;           // tokens a step
  bool adaptive = true;           // drafts less, or not at all, where it does not pay
  std::string draft_model = {};   // path of a GGUF with the same vocabulary, for `draft`
};

struct EngineOptions {
  ModelOptions model = {};
  SchedulerOptions scheduler = {};
  SpeculationOptions speculation = {};
};

// Counters since the start, and what is now.
struct EngineStats {
  size_t running = 0;         // sequences
  size_t waiting = 0;         // … for memory or their turn
  size_t waiting_prefix = 0;  // … for a prefix that another computes
  size_t loading = 0;
  size_t paused = 0;
  size_t peak_running = 0;
  uint64_t requests = 0;  // accepted
  uint64_t refused = 0;   // could never fit, or too many waited
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t steps = 0;
  uint64_t steps_kv_bound = 0;     // in which somebody waited for blocks
  uint64_t steps_queue_bound = 0;  // in which somebody waited for max_running or the token budget
  int64_t kv_bound_us = 0;         // time in which somebody waited for blocks …
  int64_t queue_bound_us = 0;      // … or else for a turn …
  int64_t compute_bound_us = 0;    // … or nobody waited, and something was computed
  uint64_t prefilled_tokens = 0;
  uint64_t decoded_tokens = 0;
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t self_checks = 0;          // full hits whose last token was computed again (rule K5) …
  uint64_t self_check_failures = 0;  // … and differed: never, unless memory is damaged
  int64_t schedule_us = 0;           // time of the engine's thread by part
  int64_t execute_us = 0;
  int64_t commit_us = 0;
  kv::KvStats kv = {};
};

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

class Engine {
 public:
  // Loads the model and starts. Errors: what is wrong with which option, or does not fit.
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Errors: kInvalidArgument, naming the field; kOutOfMemory for what could never fit, with the
  // numbers; kOverloaded where too many wait, or after Drain().
  Result<Reply> Submit(Request request);

  // Accepts no more and returns when all have ended.
  void Drain();

  EngineStats stats() const;
  // What a prompt would find in the cache now, and why not more.
  Result<kv::Explanation> Explain(const Request& request) const;

  // Tokens of a text; of a conversation, by the model's chat template, ready to be answered.
  std::vector<TokenId> Encode(std::string_view text, bool add_special = true) const;
  Result<std::vector<TokenId>> EncodeChat(std::span<const ChatMessage> messages) const;
  std::string Decode(std::span<const TokenId> tokens) const;

  size_t context() const;  // tokens of a sequence at most
  size_t kv_bytes_per_token() const;
  std::string fingerprint() const;  // hex: what K/V depends on beside tokens (rule K12)
  std::string model_name() const;

 private:
  friend struct EngineAccess;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvern
