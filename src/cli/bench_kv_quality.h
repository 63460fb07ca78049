// What types of K and V lose: how far the next-token distributions of a text are from those with
// the cache in f16, and from those with the cache in f32, at the same positions.
//
// f32 is the same weights and kernels with nothing rounded on the way into the cache. With
// quantised weights it is no truth: activations are rounded to 8 bits, and any change before them
// rounds some otherwise. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench_kv_model.h"
#include "kvern/ids.h"

namespace kvern::cli {

// One set of logits as a distribution over tokens.
class NextToken {
 public:
  explicit NextToken(std::span<const float> logits);

  double LogProbability(size_t token) const { return logits_[token] - log_sum_; }
  size_t top() const { return top_; }  // the first of the largest

  // Kullback-Leibler divergence of `other` from this one, in nats. 0 for equal logits.
  double DivergenceOf(const NextToken& other) const;

 private:
  std::span<const float> logits_;
  double log_sum_;
  size_t top_;
};

// Over all scored positions.
struct KvDistance {
  double mean_kl;
  double kl_error;  // the standard error of the mean, from the chunks' means; 0 for one chunk
  double same_top;  // a share
};

struct KvQuality {
  double perplexity;
  KvDistance from_f16;
  KvDistance from_f32;
};

struct KvQualities {
  size_t num_positions = 0;
  size_t num_chunks = 0;
  std::vector<KvQuality> by_type;
};

// Scores the second half of each chunk under each type. The first rig is f16's.
// Errors: kInvalidArgument where a chunk exceeds the context; those of the computation.
Result<KvQualities> MeasureKvQuality(KvBenchModel& model, std::vector<KvRig>& rigs,
                                     std::span<const std::vector<TokenId>> chunks);

}  // namespace kvern::cli
