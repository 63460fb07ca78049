// Runs a workload on an engine and records what became of each request.
//
// Requests are sent when they are due, whether or not earlier ones are answered (open loop), unless
// `concurrency` bounds how many are out at once. Times count from when a request was due, so that
// an engine that is late cannot hide it. Tokens are timed on the engine's thread, as they are
// handed over.
//
// Times are microseconds since the start of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve_text.h"
#include "cli/serve_workload.h"
#include "kvern/engine.h"

namespace kvern::cli {

enum class Outcome {
  kDone,
  kEnded,    // cancelled as planned
  kRefused,  // by Submit()
  kFailed,
  kNotSent,  // the time was up, or what it waited for had failed
};

struct RequestRecord {
  Outcome outcome = Outcome::kNotSent;
  std::string error = {};    // of one that was refused or has failed
  size_t prompt_tokens = 0;  // sent
  int64_t due_us = 0;
  std::optional<int64_t> first_us = {};  // its first token
  int64_t end_us = 0;
  std::vector<int64_t> chunk_us = {};  // of each chunk with tokens
  std::vector<SampledToken> tokens = {};
  Report report = {};
};

// What Engine::stats() said at one moment.
struct EngineSample {
  int64_t time_us;
  kv::StateCounts bytes;
  size_t running;
  size_t waiting;  // for memory, their turn or another's prefix
};

struct ServeRun {
  std::vector<RequestRecord> records;  // one for each request of the workload
  std::vector<EngineSample> samples;
  EngineStats before, after;
  int64_t wall_us = 0;
};

struct DriveOptions {
  std::optional<size_t> concurrency = {};
  std::optional<int64_t> duration_us = {};  // none is sent later; those that are out are answered
  bool use_cache = true;
  std::function<void(double)> progress = {};  // share of the requests that have ended; may be empty
};

// Computes the prefixes that requests have in common, so that the run finds them cached.
Status WarmUp(Engine& engine, const Workload& workload, TextMaker& texts);

// Each request is greedy and goes on after end tokens: replies have the planned length.
ServeRun Drive(Engine& engine, const Workload& workload, TextMaker& texts,
               const DriveOptions& options);

// The prompt of a request, once those that it refers to have been answered.
std::vector<TokenId> PromptTokens(const Workload& workload, size_t request, TextMaker& texts,
                                  const std::vector<RequestRecord>& records);

// As Drive() sends it.
Request RequestOf(std::vector<TokenId> prompt, uint32_t new_tokens, bool use_cache);

}  // namespace kvern::cli
