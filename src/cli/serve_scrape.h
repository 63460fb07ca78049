// What a server's /metrics says of its engine, as far as the names are Kvern's.
#pragma once

#include <optional>
#include <string_view>

#include "kvern/engine.h"

namespace kvern::cli {

// None: it is no metrics text of a Kvern server. What the text lacks is zero: peaks, resumes,
// blocks merged and rows copied. Prompt tokens that were computed are those of requests that have
// ended, and tokens that were decoded the mean of a step times the steps. Pure.
std::optional<EngineStats> ParseMetrics(std::string_view text);

}  // namespace kvern::cli
