// Requests through the public Engine, submitted and read by several threads at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/exec/one_answer/core_run.h"
#include "kvern/engine.h"

namespace kvern::engine::one_answer {

// Opens an engine as `setup` says.
Result<std::unique_ptr<Engine>> OpenEngine(Lab* lab, const CoreSetup& setup);

// Submits in the order of `submissions`, thread t every fourth from t on, and waits for all. Those
// with `cancel_at_step` are cancelled after so many chunks. Steps are not looked at otherwise.
// Errors: a request was refused or failed.
Result<std::vector<RequestAnswer>> AnswerByEngine(Engine& engine,
                                                  const std::vector<Submission>& submissions);

}  // namespace kvern::engine::one_answer
