// BatchProgress: shows how far a batch is, on standard error: a bar on a terminal, else a line
// every ten seconds. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "cli/batch_run.h"
#include "cli/progress.h"

namespace kvern::cli {

class BatchProgress {
 public:
  explicit BatchProgress(const Clock& clock);

  // Cheap: draws at most ten times a second.
  void Show(const BatchFigures& figures);

 private:
  const Clock& clock_;
  const int64_t start_us_;
  int64_t shown_us_;  // when the last line was
  const bool is_terminal_;
  Progress bar_;
};

// "120/1000 requests, 45.1 t/s, 63 % reused, 2:10 left". What is left is known once
// something is done. `elapsed_us` is that of this run.
std::string FormatBatchStatus(const BatchFigures& figures, int64_t elapsed_us);

// Lines for the end.
std::string FormatBatchSummary(const BatchFigures& figures, int64_t elapsed_us);

}  // namespace kvern::cli
