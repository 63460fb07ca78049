// What an engine did in a time, what held it up (KV memory, its queue, or computing), and what
// would help. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/engine.h"

namespace kvern::engine {

// Of a time.
struct Load {
  EngineStats engine;  // counters of that time alone; peaks and what is now as the engine says
  double mean_running = 0;
  size_t peak_running = 0;
  size_t peak_wanted_bytes = 0;  // if those that waited had had what those that ran had
};

// Counters of `after` less those of `before`; gauges and peaks are those of `after`.
EngineStats Since(const EngineStats& before, const EngineStats& after);

// KV memory that all would hold if those that wait had what those that run have.
size_t WantedBytes(const kv::StateCounts& bytes, size_t running, size_t waiting);

// Share of a step's time that is not the executor's.
double OverheadShare(const EngineStats& stats);

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
Verdict Judge(const Load& load, const std::optional<EngineOptions>& options);

}  // namespace kvern::engine
