#include "compute/sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fp_env.h"
#include "base/rng.h"

namespace kvern::compute {
namespace {

// Weights are integers in units of 2⁻⁴⁰ of the likeliest token's, so sums are exact in any order:
// fewer than 2²⁴ of them fit in 64 bits.
constexpr double kWeightUnits = 0x1p40;
constexpr size_t kMaxVocabulary = size_t{1} << 24;

struct Candidate {
  float logit;
  uint32_t id;
  uint64_t weight;
};

bool RanksBefore(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}
bool HasLowerId(const Candidate& a, const Candidate& b) { return a.id < b.id; }

uint32_t Index(TokenId id) { return static_cast<uint32_t>(id); }

bool AdjustsLogits(const SamplingParams& params) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1.0f ||
         params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

float Clamp(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMax, kMax);
}

// `counts` is all zeros, one a token of the vocabulary, before and after.
void PenalizeRepetition(const SamplingParams& params, std::span<const TokenId> committed,
                        std::vector<uint32_t>& counts, std::vector<float>& logits) {
  if (params.repetition_penalty == 1.0f) return;
  size_t window = committed.size();
  if (params.repetition_window >= 0) {
    window = std::min(window, static_cast<size_t>(params.repetition_window));
  }
  for (const TokenId id : committed.last(window)) {
    const uint32_t i = Index(id);
    CHECK(i < logits.size());
    if (counts[i]++ > 0) continue;
    const float p = params.repetition_penalty;
    logits[i] = Clamp(logits[i] > 0 ? logits[i] / p : logits[i] * p);
  }
  for (const TokenId id : committed.last(window)) counts[Index(id)] = 0;
}

void PenalizeCounts(const SamplingParams& params, std::span<const TokenId> completion,
                    std::vector<uint32_t>& counts, std::vector<float>& logits) {
  if (params.presence_penalty == 0.0f && params.frequency_penalty == 0.0f) return;
  for (const TokenId id : completion) {
    CHECK(Index(id) < logits.size());
    ++counts[Index(id)];
  }
  for (const TokenId id : completion) {
    const uint32_t i = Index(id);
    if (counts[i] == 0) continue;
    const float frequency = static_cast<float>(counts[i]) * params.frequency_penalty;
    logits[i] = Clamp(Clamp(logits[i] - frequency) - params.presence_penalty);
    counts[i] = 0;
  }
}

void AdjustLogits(std::span<const float> raw, const SamplingParams& params,
                  const SamplingHistory& history, std::vector<uint32_t>& counts,
                  std::vector<float>& logits) {
  logits.assign(raw.begin(), raw.end());
  if (counts.size() < logits.size()) counts.resize(logits.size());
  for (const auto& [id, bias] : params.logit_bias) {
    CHECK(Index(id) < logits.size());
    logits[Index(id)] = Clamp(logits[Index(id)] + bias);
  }
  PenalizeRepetition(params, history.committed, counts, logits);
  PenalizeCounts(params, history.committed.subspan(history.num_prompt_tokens), counts, logits);
}

uint32_t Highest(std::span<const float> logits) {
  // Lanes, because a compiler makes one vector instruction of them, and none of a lone maximum.
  constexpr size_t kLanes = 32;
  std::array<float, kLanes> lanes;
  lanes.fill(logits[0]);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  float highest = *std::max_element(lanes.begin(), lanes.end());
  for (; i < logits.size(); ++i) highest = std::max(highest, logits[i]);
  return static_cast<uint32_t>(std::find(logits.begin(), logits.end(), highest) - logits.begin());
}

// Replaces `best` by the k candidates that rank first, ids ascending. k ≥ 1; all if there are
// fewer.
void FindFirst(std::span<const float> logits, size_t k, std::vector<Candidate>& best) {
  k = std::min(k, logits.size());
  best.clear();
  if (k == logits.size()) {
    best.reserve(k);
    for (uint32_t i = 0; i < k; ++i) best.push_back({logits[i], i, 0});
    return;
  }
  // Ids ascend, so a later token ranks before a kept one only if its logit is higher.
  float threshold = -std::numeric_limits<float>::infinity();
  const auto shrink = [&] {
    const auto last = best.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::nth_element(best.begin(), last, best.end(), RanksBefore);
    threshold = last->logit;
    best.resize(k);
  };
  best.reserve(std::min(2 * k, logits.size()));
  for (uint32_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    best.push_back({logits[i], i, 0});
    if (best.size() == 2 * k) shrink();
  }
  shrink();
  std::sort(best.begin(), best.end(), HasLowerId);
}

void Weigh(const RowKernels& rows, float temperature, std::vector<Candidate>& candidates,
           std::vector<float>& scaled) {
  float highest = candidates[0].logit;
  for (const Candidate& candidate : candidates) highest = std::max(highest, candidate.logit);
  scaled.resize(candidates.size());
  for (size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] = (candidates[i].logit - highest) / temperature;
  }
  rows.exp(scaled.data(), scaled.size(), scaled.data());
  for (size_t i = 0; i < scaled.size(); ++i) {
    candidates[i].weight = static_cast<uint64_t>(static_cast<double>(scaled[i]) * kWeightUnits);
  }
}

uint64_t TotalWeight(std::span<const Candidate> candidates) {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// The last of the fewest candidates that rank first and together weigh `needed` or more. `needed`
// is at most the total. Halves the range that holds it, so it takes linear time, not a sort, but
// leaves another order.
Candidate LastWithin(std::vector<Candidate>& candidates, uint64_t needed) {
  auto begin = candidates.begin(), end = candidates.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, RanksBefore);
    const uint64_t sum = TotalWeight({begin, middle});
    if (sum >= needed) {
      end = middle;
    } else {
      needed -= sum;
      begin = middle;
    }
  }
  return *begin;
}

// The same over all candidates: sorts them into buckets of descending logits first, since all but
// one bucket, which `inside` is for, need no look inside.
Candidate LastOfNucleus(const std::vector<Candidate>& candidates, uint64_t needed,
                        std::vector<Candidate>& inside) {
  constexpr size_t kNumBuckets = 1024;
  const auto ends =
      std::minmax_element(candidates.begin(), candidates.end(),
                          [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  const double highest = ends.second->logit;
  const double scale = (kNumBuckets - 1) / std::max(highest - ends.first->logit, 1e-30);
  const auto bucket_of = [&](const Candidate& candidate) {
    return static_cast<size_t>((highest - candidate.logit) * scale);
  };
  std::array<uint64_t, kNumBuckets> weights{};
  for (const Candidate& candidate : candidates) weights[bucket_of(candidate)] += candidate.weight;
  size_t bucket = 0;
  while (weights[bucket] < needed) needed -= weights[bucket++];
  inside.clear();
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(inside),
               [&](const Candidate& candidate) { return bucket_of(candidate) == bucket; });
  return LastWithin(inside, needed);
}

void KeepTopP(float top_p, std::vector<Candidate>& candidates, std::vector<Candidate>& inside) {
  if (top_p == 1.0f) return;
  const double share = double{top_p} * static_cast<double>(TotalWeight(candidates));
  const auto needed = static_cast<uint64_t>(std::ceil(share));
  const Candidate last = LastOfNucleus(candidates, needed, inside);
  std::erase_if(candidates, [&](const Candidate& c) { return RanksBefore(last, c); });
}

void KeepMinP(float min_p, std::vector<Candidate>& candidates) {
  if (min_p == 0.0f) return;
  const double smallest = double{min_p} * kWeightUnits;
  std::erase_if(candidates,
                [&](const Candidate& c) { return static_cast<double>(c.weight) < smallest; });
}

uint64_t RandomWord(uint64_t seed, SampleKey key) {
  const std::array<uint32_t, 4> words =
      Philox4x32({key.position, key.completion_index, key.draw, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{words[1]} << 32 | words[0];
}

uint32_t Draw(std::span<const Candidate> candidates, uint64_t random) {
  const unsigned __int128 scaled = static_cast<unsigned __int128>(random) * TotalWeight(candidates);
  auto left = static_cast<uint64_t>(scaled >> 64);
  for (const Candidate& candidate : candidates) {
    if (left < candidate.weight) return candidate.id;
    left -= candidate.weight;
  }
  CHECK(false);  // left started below the total
}

template <typename T>
Error Bad(std::string_view field, T value, std::string_view rule) {
  return Errorf(ErrorCode::kInvalidArgument, "{}: {} {}", field, value, rule);
}

}  // namespace

Status ValidateSamplingParams(const SamplingParams& params, size_t vocabulary_size) {
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };
  constexpr float kMax = std::numeric_limits<float>::max();
  if (!within(params.temperature, 0, kMax)) {
    return Bad("temperature", params.temperature, "is not a number from 0 (greedy) up");
  }
  if (!within(params.top_p, 0, 1) || params.top_p == 0) {
    return Bad("top_p", params.top_p, "is not above 0 and at most 1 (off)");
  }
  if (!within(params.min_p, 0, 1)) return Bad("min_p", params.min_p, "is not from 0 (off) to 1");
  if (!within(params.repetition_penalty, 0, kMax) || params.repetition_penalty == 0) {
    return Bad("repetition_penalty", params.repetition_penalty, "is not a number above 0 (1: off)");
  }
  if (params.repetition_window < -1) {
    return Bad("repetition_window", params.repetition_window, "is not -1 (all), 0 (off) or more");
  }
  if (!std::isfinite(params.presence_penalty)) {
    return Bad("presence_penalty", params.presence_penalty, "is not a finite number");
  }
  if (!std::isfinite(params.frequency_penalty)) {
    return Bad("frequency_penalty", params.frequency_penalty, "is not a finite number");
  }
  if (params.num_logprobs < 0 || static_cast<size_t>(params.num_logprobs) > vocabulary_size) {
    return Bad("num_logprobs", params.num_logprobs,
               fmt::format("is not from 0 to the vocabulary's {}", vocabulary_size));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (Index(id) >= vocabulary_size) {
      return Bad("logit_bias", Index(id),
                 fmt::format("is no token: the vocabulary has {}", vocabulary_size));
    }
    if (!std::isfinite(bias)) {
      return Bad("logit_bias", bias, fmt::format("for token {} is not a finite number", Index(id)));
    }
  }
  return {};
}

struct Sampler::Memory {
  uint32_t Choose(const RowKernels& rows, std::span<const float> logits,
                  const SamplingParams& params, SampleKey key);
  void FindTop(std::span<const float> logits, float log_sum, int32_t count,
               std::vector<TokenLogprob>& top);

  std::vector<float> adjusted;   // logits
  std::vector<uint32_t> counts;  // by token, all zeros between calls
  std::vector<Candidate> candidates, inside;
  std::vector<float> scaled;
};

uint32_t Sampler::Memory::Choose(const RowKernels& rows, std::span<const float> logits,
                                 const SamplingParams& params, SampleKey key) {
  if (params.temperature == 0.0f) return Highest(logits);
  const size_t k = params.top_k > 0 ? static_cast<size_t>(params.top_k) : logits.size();
  FindFirst(logits, k, candidates);
  Weigh(rows, params.temperature, candidates, scaled);
  KeepTopP(params.top_p, candidates, inside);
  KeepMinP(params.min_p, candidates);
  return Draw(candidates, RandomWord(params.seed, key));
}

void Sampler::Memory::FindTop(std::span<const float> logits, float log_sum, int32_t count,
                              std::vector<TokenLogprob>& top) {
  top.clear();
  if (count <= 0) return;
  FindFirst(logits, static_cast<size_t>(count), candidates);
  std::sort(candidates.begin(), candidates.end(), RanksBefore);
  for (const Candidate& candidate : candidates) {
    top.push_back({TokenId{candidate.id}, candidate.logit - log_sum});
  }
}

Sampler::Sampler(const RowKernels* rows, size_t vocabulary_size)
    : rows_(rows), memory_(std::make_unique<Memory>()) {
  memory_->adjusted.reserve(vocabulary_size);
  memory_->counts.reserve(vocabulary_size);
  memory_->candidates.reserve(vocabulary_size);
  memory_->inside.reserve(vocabulary_size);
  memory_->scaled.reserve(vocabulary_size);
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

size_t Sampler::bytes() const {
  return (memory_->adjusted.capacity() + memory_->scaled.capacity()) * sizeof(float) +
         memory_->counts.capacity() * sizeof(uint32_t) +
         (memory_->candidates.capacity() + memory_->inside.capacity()) * sizeof(Candidate);
}

Status Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                       const SamplingHistory& history, SampleKey key, SampledToken& token) {
  CHECK(!logits.empty() && logits.size() < kMaxVocabulary);
  CHECK(history.num_prompt_tokens <= history.committed.size());
  const ScopedFpEnv fp_env;
  if (!rows_->all_finite(logits.data(), logits.size())) {
    return Errorf(ErrorCode::kNonFinite,
                  "the logits for position {} are not finite: the model's weights or the prompt "
                  "overflow",
                  key.position);
  }
  std::span<const float> adjusted = logits;
  if (AdjustsLogits(params)) {
    AdjustLogits(logits, params, history, memory_->counts, memory_->adjusted);
    adjusted = memory_->adjusted;
  }
  const uint32_t id = memory_->Choose(*rows_, adjusted, params, key);
  const float log_sum = rows_->log_sum_exp(logits.data(), logits.size());
  token.id = TokenId{id};
  token.logprob = logits[id] - log_sum;
  memory_->FindTop(logits, log_sum, params.num_logprobs, token.top);
  return {};
}

}  // namespace kvern::compute
