// What held a run up, and what would help: KV memory, its queue, or computing. A pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve_statistics.h"

namespace kvern::cli {

enum class Bound {
  kKv,       // requests waited for blocks
  kQueue,    // … for their turn: max_running, or the step's token budget
  kCompute,  // nobody waited for anything but the arithmetic
};
std::string_view ToString(Bound bound);  // "KV-bound", …

struct Verdict {
  Bound bound = Bound::kCompute;
  double kv_share = 0;  // of the steps: somebody waited for blocks
  double queue_share = 0;
  double tokens_per_step = 0;
  std::vector<std::string> levers;  // best first, each with the numbers that it rests on
};

// `options`: of the engine, where they are known.
Verdict Judge(const ServeSummary& summary, const std::optional<EngineOptions>& options);

}  // namespace kvern::cli
