// How `kvern explain example` tells the worked example (engine/exec/worked_example.h) to a learner.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/exec/worked_example.h"

namespace kvern::cli {

// Step by step, in lines of at most 80 columns. The same text on every instruction set.
std::string WorkedExampleText(const engine::WorkedExample& example);

// Every number unrounded; a score that the mask hides is null.
nlohmann::ordered_json WorkedExampleJson(const engine::WorkedExample& example);

}  // namespace kvern::cli
