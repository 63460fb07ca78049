// The ways in which the set of requests is served: each is compared with every request alone.
// Plain data.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/exec/one_answer/core_run.h"

namespace kvern::engine::one_answer {

enum class CacheMode {
  kOff,   // no request takes or gives
  kCold,  // one pass over an empty cache
  kWarm,  // and a second, over what the first has left
};

enum class Arrival {
  kInTurn,    // each when the one before it has ended
  kTogether,  // all before the first step
  kRandom,    // in a random order, some steps apart
  kThreads,   // from four threads, through the public Engine
};

struct Combination {
  std::string name;
  CoreSetup setup = {};
  CacheMode cache = CacheMode::kCold;
  Arrival arrival = Arrival::kRandom;
  size_t min_new_tokens = 0;          // requests of fewer are left out
  size_t max_case_tokens = kContext;  // requests of more, prompt and answer, are left out
  size_t num_copies = 1;              // of each request; every second one is private
  size_t min_preemptions = 0;         // fewer: the run has not shown what it is for
};

enum class Suite { kCi, kFull };

// CI: eight, in which each value of each dimension occurs. Full: the whole grid.
std::vector<Combination> Combinations(Suite suite);

}  // namespace kvern::engine::one_answer
