// Sampler: one row of logits becomes one token, as a pure function (rule N10).
//
// The token depends on the arguments alone: not on the batch, the instruction set, earlier calls,
// the sampler or time. The steps, in this order (docs/numerics.md has every rounding):
//   1. logit bias;
//   2. repetition penalty: tokens among the last repetition_window committed ones, prompt included,
//      once each (as llama.cpp counts);
//   3. frequency and presence penalties: tokens of this completion, prompt excluded, by how often
//      they were committed (as OpenAI counts);
//   4. temperature 0: the highest logit, lowest id on ties. Otherwise the candidates are ordered by
//      (logit descending, id ascending), weighed by exp((logit - highest) / temperature), and cut:
//      top-k, then top-p, then min-p;
//   5. one draw from what is left.
// Logprobs are those of the model: log-softmax of the logits as given, before step 1.
//
// A sampler owns the memory that sampling needs, and allocates no more. Not thread-safe: one a
// thread. Runs in the defined floating-point environment whatever the caller's is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/rows.h"
#include "kvern/sampling.h"

namespace kvern::compute {

// What a completion has committed so far: its prompt, then its own tokens.
struct SamplingHistory {
  std::span<const TokenId> committed;
  size_t num_prompt_tokens = 0;  // ≤ committed.size()
};

// Names one draw of a request. Position is the sampled token's place in the sequence.
struct SampleKey {
  uint32_t completion_index = 0;
  uint32_t position = 0;
  uint32_t draw = 0;
};

// Error: kInvalidArgument, naming the field.
Status ValidateSamplingParams(const SamplingParams& params, size_t vocabulary_size);

class Sampler {
 public:
  // Has memory for rows of up to `vocabulary_size` logits, and gets more for longer ones.
  Sampler(const RowKernels* rows, size_t vocabulary_size);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // `logits` has one per token of the vocabulary. Overwrites `token`, whose memory is used again.
  // REQUIRES: valid params; history tokens in the vocabulary. Error: kNonFinite if a logit is NaN
  // or infinite; the token then means nothing.
  Status Sample(std::span<const float> logits, const SamplingParams& params,
                const SamplingHistory& history, SampleKey key, SampledToken& token);

  size_t bytes() const;

 private:
  struct Memory;
  const RowKernels* rows_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace kvern::compute
