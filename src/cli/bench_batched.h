// BenchBatched: how fast many sequences of a model are computed at once.
//
// The test is llama-batched-bench's: B sequences have a prompt of PP tokens each, computed
// together, and then grow by TG tokens, one token of each a step. With a shared prefix the prompt
// is the same for all: computed once, held once, and read once per step for all of them. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "engine/exec/open.h"

namespace kvern::cli {

struct BatchedTest {
  uint32_t num_prompt = 0;     // PP
  uint32_t num_gen = 0;        // TG
  uint32_t num_sequences = 0;  // B; at most the tokens of a step
  bool is_shared = false;

  size_t num_prefill_tokens() const {
    return is_shared ? num_prompt : size_t{num_prompt} * num_sequences;
  }
  size_t num_decode_tokens() const { return size_t{num_gen} * num_sequences; }
  // Tokens whose K/V are held at the end.
  size_t num_kv_tokens() const { return num_prefill_tokens() + num_decode_tokens(); }
};

// Tokens that the pool needs room for: num_kv_tokens(), each sequence in blocks of its own.
size_t PoolTokens(const BatchedTest& test);

struct BatchedResult {
  double prefill_seconds = 0;
  double decode_seconds = 0;
  size_t kv_bytes = 0;  // held at the end, by all sequences together
};

// Errors: kOutOfMemory where the pool is too small, and those of the computation.
Result<BatchedResult> RunBatchedTest(engine::OpenedModel& model, const BatchedTest& test);

}  // namespace kvern::cli
