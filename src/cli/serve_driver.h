// Runs a workload on a target and records what became of each request.
//
// Requests are sent when they are due, whether or not earlier ones are answered (open loop), unless
// `concurrency` bounds how many are out at once. Times count from when a request was due, so that
// an engine that is late cannot hide it. Tokens are timed on the target's thread, as they are
// handed over.
//
// Times are microseconds since the start of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve_target.h"
#include "cli/serve_text.h"
#include "cli/serve_workload.h"
#include "kvern/engine.h"

namespace kvern::cli {

struct RequestRecord {
  Outcome outcome = Outcome::kNotSent;
  std::string error = {};      // of one that was refused or has failed
  std::string failed_by = {};  // what kind that is, where the target says it
  size_t prompt_tokens = 0;    // sent
  int64_t due_us = 0;
  std::optional<int64_t> first_us = {};  // its first token
  int64_t end_us = 0;
  std::vector<int64_t> chunk_us = {};     // of each chunk with tokens
  size_t num_tokens = 0;                  // of the reply
  std::vector<SampledToken> tokens = {};  // … where their ids are known
  std::optional<size_t> cached_tokens = {};
  std::optional<int64_t> queue_us = {};
  size_t blocks_peak = 0;
};

// What the target's Stats() said at one moment.
struct EngineSample {
  int64_t time_us;
  kv::StateCounts bytes;
  size_t running;
  size_t waiting;  // for memory, their turn or another's prefix
};

struct ServeRun {
  std::vector<RequestRecord> records;  // one for each request of the workload
  std::vector<EngineSample> samples;
  EngineView view = EngineView::kAll;  // how much of what follows, and of `samples`, is known
  EngineStats before = {}, after = {};
  int64_t wall_us = 0;
};

struct DriveOptions {
  std::optional<size_t> concurrency = {};
  std::optional<int64_t> duration_us = {};  // none is sent later; those that are out are answered
  bool use_cache = true;
  std::function<void(double)> progress = {};  // share of the requests that have ended; may be empty
};

// Computes the prefixes that requests have in common, so that the run finds them cached.
Status WarmUp(ServeTarget& target, const Workload& workload, TextMaker& texts);

// Errors: those of the texts; what becomes of requests is in their records.
Result<ServeRun> Drive(ServeTarget& target, const Workload& workload, TextMaker& texts,
                       const DriveOptions& options);

// The prompt of a request, once those that it refers to have been answered.
Result<std::vector<TokenId>> PromptTokens(const Workload& workload, size_t request,
                                          TextMaker& texts,
                                          const std::vector<RequestRecord>& records);

// The tokens of an answer that is waited for. Errors: it was refused or has failed.
Result<std::vector<SampledToken>> AskAndWait(ServeTarget& target, AskedRequest request);

}  // namespace kvern::cli
