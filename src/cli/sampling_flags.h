// SamplingFlags: how tokens are chosen, with llama.cpp's names and defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvern/sampling.h"

namespace CLI {
class App;
}

namespace kvern::cli {

struct SamplingFlags {
  SamplingParams params;
  int64_t seed = -1;                    // -1: drawn
  std::vector<std::string> logit_bias;  // "ID+BIAS" or "ID-BIAS"
};

void AddSamplingFlags(CLI::App& app, SamplingFlags& flags);

// Checked parameters, with a drawn seed if none was given. Errors: kInvalidArgument names the flag.
Result<SamplingParams> ParamsFromFlags(const SamplingFlags& flags, size_t vocab_size);

}  // namespace kvern::cli
