// An engine in this process as the target of a workload.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/serve_target.h"
#include "kvern/engine.h"

namespace kvern::cli {

// Errors: Engine::Open()'s.
Result<std::unique_ptr<ServeTarget>> OpenEngineTarget(const EngineOptions& options);

}  // namespace kvern::cli
