// SamplingParams: how one request turns logits into tokens, as a pure function (rule N10;
// docs/numerics.md has every rounding). Plain data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kvern/ids.h"

namespace kvern {

// Applied in this order: logit bias, penalties, temperature, top-k, top-p, min-p, then one draw.
// temperature 0 is greedy: the highest logit after bias and penalties, lowest id on ties.
struct SamplingParams {
  float temperature = 0.8f;         // ≥ 0
  int32_t top_k = 40;               // ≤ 0: off
  float top_p = 0.95f;              // (0, 1]; 1: off
  float min_p = 0.05f;              // [0, 1]; 0: off
  float repetition_penalty = 1.0f;  // > 0; 1: off
  int32_t repetition_window = 64;   // last committed tokens that are penalised; -1: all, 0: off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;         // drawn once at arrival when the user gives none
  int32_t num_logprobs = 0;  // top alternatives reported per token; 0: none
  std::vector<std::pair<TokenId, float>> logit_bias;
};

// A token and the natural logarithm of its probability under the model.
struct TokenLogprob {
  TokenId id;
  float logprob;
};

// What sampling chose.
struct SampledToken {
  TokenId id;
  float logprob;
  std::vector<TokenLogprob> top;  // num_logprobs most likely tokens, best first
};

}  // namespace kvern
