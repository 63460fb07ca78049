// What a run of the workload mixed-prefill says of both sides: the streams, and the long prompt
// that came in between. Pure functions.
#pragma once

#include "cli/serve_driver.h"
#include "cli/serve_statistics.h"
#include "cli/serve_workload.h"

namespace kvern::cli {

// Rates are 0 where the run did not get that far. They are tokens per second until the first token
// of the reply.
struct MixedPrefillResult {
  Percentiles undisturbed_us;  // time between tokens of a stream, while all of them decode
  Percentiles disturbed_us;    // the same while the long prompt is computed
  double alone_rate = 0;       // of the long prompt, with nothing else to do
  double mixed_rate = 0;       // … beside the streams
};

MixedPrefillResult JudgeMixedPrefill(const Workload& workload, const ServeRun& run);

}  // namespace kvern::cli
