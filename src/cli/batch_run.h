// RunBatch: answers the requests of a file, each exactly once, in an order that lets them share
// their prefixes.
//
// Lines are read in windows; those of a window are sorted by their tokens, so that requests with a
// common prefix follow each other, and a bounded number of them is asked at a time. Replies are
// written as they come. One thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/batch_input.h"
#include "cli/batch_output.h"
#include "kvern/engine.h"
#include "server/api/openai.h"

namespace kvern::cli {

// Who answers: the engine, or a test.
class Answerer {
 public:
  struct Finished {
    size_t key;
    Result<Answer> answer;
  };

  virtual ~Answerer() = default;

  // Asks; does not wait. Its answer comes from Await(), in any order.
  virtual void Submit(size_t key, Request request) = 0;

  // An answer that is complete, or none after this time.
  virtual std::optional<Finished> Await(int64_t timeout_us) = 0;
};

struct BatchFigures {
  size_t num_requests = 0;  // of the input
  size_t num_kept = 0;      // that the output answered already
  size_t num_done = 0;      // answered now …
  size_t num_failed = 0;    // … of these, with an error
  size_t prompt_tokens = 0;
  size_t prefilled_tokens = 0;
  kv::PromptSplit prompts = {};
  size_t generated_tokens = 0;
  size_t num_dropped_bytes = 0;  // of an incomplete line of the output
  bool was_stopped = false;
};

// The files of a batch, looked through and ready to go on.
struct BatchFiles {
  BatchReader input;
  BatchOutput output;
  size_t num_requests;

  bool IsDone() const { return output.num_answered() == num_requests; }
};

// Errors: those of IndexBatch and BatchOutput::Open.
Result<BatchFiles> OpenBatchFiles(const std::string& input, const std::string& output,
                                  const Clock& clock);

struct BatchOptions {
  size_t max_in_flight = 512;
  // A window ends with the first of these.
  size_t window_lines = 10'000;
  size_t window_tokens = size_t{1} << 24;
  std::string id_prefix = {};  // of ids in replies, unlike that of any other run
  std::function<int64_t()> unix_time_s = {};
  std::function<void(const BatchFigures&)> on_change = {};  // called often
};

// `stop`, when it becomes true, ends it early; what was not answered by then is next time.
// Errors: those of the files.
Result<BatchFigures> RunBatch(BatchFiles files, const BatchOptions& options,
                              const server::ModelInfo& model, Answerer& answerer,
                              const std::atomic<bool>& stop);

}  // namespace kvern::cli
