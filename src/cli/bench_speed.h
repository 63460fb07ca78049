// BenchSpeed: how fast one sequence of a model is computed: prompts, new tokens, at any depth.
//
// The tests and their names are llama-bench's: ppP computes a prompt of P tokens, tgN feeds N
// tokens one by one, ppP+tgN does both, each behind D tokens that are not timed (@ dD). Every test
// runs once unmeasured, then `repetitions` times. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"

namespace kvern::cli {

struct SpeedTest {
  uint32_t num_prompt = 0;
  uint32_t num_gen = 0;
  uint32_t depth = 0;

  uint32_t num_tokens() const { return num_prompt + num_gen; }
};

struct SpeedResult {
  std::string test_time;           // when it began: UTC, ISO 8601
  std::vector<double> samples_ns;  // one per repetition
  size_t kv_bytes = 0;             // held at the end
  uint64_t peak_rss_bytes = 0;     // since the model was opened
};

// "pp512", "tg128 @ d4096".
std::string TestName(const SpeedTest& test);

// Errors: kOutOfMemory where the context is too small, and those of the computation.
Result<SpeedResult> RunSpeedTest(engine::OpenedModel& model, const kv::Strategy& strategy,
                                 const SpeedTest& test, uint32_t repetitions);

// What a model file is, as llama-bench says it.
struct ModelSummary {
  std::string type;  // "llama 135M Q4_1"
  uint64_t tensor_bytes;
  uint64_t num_params;
};

ModelSummary Summarize(const engine::OpenedModel& model);

}  // namespace kvern::cli
