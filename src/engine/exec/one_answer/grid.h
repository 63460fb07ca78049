// Grid: runs combinations, and compares what each gives with every request alone, bit for bit.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "engine/exec/one_answer/combinations.h"
#include "engine/exec/one_answer/lab.h"
#include "engine/exec/one_answer/reference.h"
#include "engine/exec/one_answer/requests.h"

namespace kvern::engine::one_answer {

// The set of requests, and its answers, where K and V are stored as certain types.
struct AnsweredSet {
  Reference reference;
  std::vector<Case> cases = {};
};

struct Outcome {
  std::vector<std::string> findings;  // none: all was as it must be
  size_t num_answers = 0;
  size_t num_tokens = 0;  // that were compared, with their logprobs
  size_t num_rows = 0;    // of logits; the public Engine shows none
  EngineStats stats = {};
  size_t num_left = 0;  // chunks, between two layers

  void Find(const std::string& finding) { findings.push_back(finding); }
};

class Grid {
 public:
  // `lab` must outlive it. `docs_folder` has the texts of the prompts.
  Grid(Lab* lab, std::string docs_folder) : lab_(*lab), docs_folder_(std::move(docs_folder)) {}

  // Errors: those of opening the model and reading the docs, and a request that cannot be answered.
  Result<AnsweredSet*> SetOf(const std::string& k_dtype, const std::string& v_dtype);
  Result<Outcome> Run(const Combination& combination, uint64_t seed);

  // Every case of the set that is not too long, once more without any cache, from `lab`'s own
  // reference code; and that those which should be stopped were.
  Result<Outcome> CheckReference(size_t max_prompt_tokens);

  Result<std::span<const TokenId>> Docs();

 private:
  Lab& lab_;
  const std::string docs_folder_;
  std::vector<TokenId> docs_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<AnsweredSet>> sets_;
};

// Compares what a run gave; adds to `outcome`. `logits`: none where they are not known.
Status CompareAnswers(Reference& reference, const std::vector<Submission>& submissions,
                      const std::vector<RequestAnswer>& answers, const LogitHashes* logits,
                      Outcome& outcome);

// A random order, and gaps of a few steps.
std::vector<Submission> ArriveAtRandom(std::vector<Submission> submissions, SplitMix64& random);

}  // namespace kvern::engine::one_answer
