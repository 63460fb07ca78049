// Soak: random requests of the set, served in random ways, for as long as one likes.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/exec/one_answer/grid.h"
#include "engine/exec/one_answer/lab.h"

namespace kvern::engine::one_answer {

// Rounds with the seeds `seed`, `seed` + 1, …, at least one, until the time is up. A line for each
// is printed; `--minutes 0 --seed N` runs one again. Errors: the first round that found something.
Status Soak(Lab& lab, Grid& grid, uint64_t seed, uint64_t minutes);

}  // namespace kvern::engine::one_answer
