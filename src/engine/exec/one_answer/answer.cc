#include "engine/exec/one_answer/answer.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace kvern::engine::one_answer {
namespace {

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

std::optional<std::string> FindTokenDifference(const SampledToken& expected,
                                               const SampledToken& actual) {
  if (expected.id != actual.id) {
    return fmt::format("is {}, not {}", static_cast<uint32_t>(actual.id),
                       static_cast<uint32_t>(expected.id));
  }
  if (!SameBits(expected.logprob, actual.logprob)) {
    return fmt::format("has logprob {:a}, not {:a}", actual.logprob, expected.logprob);
  }
  if (expected.top.size() != actual.top.size()) {
    return fmt::format("has {} top logprobs, not {}", actual.top.size(), expected.top.size());
  }
  for (size_t i = 0; i < expected.top.size(); ++i) {
    const TokenLogprob &a = actual.top[i], &e = expected.top[i];
    if (a.id == e.id && SameBits(a.logprob, e.logprob)) continue;
    return fmt::format("has {} with {:a} as top logprob {}, not {} with {:a}",
                       static_cast<uint32_t>(a.id), a.logprob, i, static_cast<uint32_t>(e.id),
                       e.logprob);
  }
  return std::nullopt;
}

std::optional<std::string> FindDifference(const CompletionAnswer& expected,
                                          const CompletionAnswer& actual, bool was_cut) {
  const size_t num_common = std::min(expected.tokens.size(), actual.tokens.size());
  for (size_t i = 0; i < num_common; ++i) {
    if (const auto what = FindTokenDifference(expected.tokens[i], actual.tokens[i])) {
      return fmt::format("token {} {}", i, *what);
    }
  }
  if (actual.tokens.size() > expected.tokens.size() ||
      (!was_cut && actual.tokens.size() < expected.tokens.size())) {
    return fmt::format("has {} tokens, not {}", actual.tokens.size(), expected.tokens.size());
  }
  if (was_cut) return std::nullopt;
  if (actual.text != expected.text) {
    return fmt::format("has the text '{}', not '{}'", actual.text, expected.text);
  }
  if (actual.finish == expected.finish) return std::nullopt;
  const auto name = [](const std::optional<kvern::FinishReason>& finish) {
    return finish ? ToString(*finish) : std::string_view("nothing");
  };
  return fmt::format("ends with {}, not {}", name(actual.finish), name(expected.finish));
}

}  // namespace

std::optional<std::string> FindDifference(const RequestAnswer& expected,
                                          const RequestAnswer& actual, bool was_cut) {
  if (expected.completions.size() != actual.completions.size()) {
    return fmt::format("{} completions, not {}", actual.completions.size(),
                       expected.completions.size());
  }
  for (size_t i = 0; i < expected.completions.size(); ++i) {
    if (auto what = FindDifference(expected.completions[i], actual.completions[i], was_cut)) {
      return fmt::format("completion {} {}", i, *what);
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindLogitDifference(const LogitHashes& expected,
                                               const LogitHashes& actual, uint64_t seed,
                                               bool was_cut) {
  for (auto row = expected.lower_bound({seed, 0, 0}); row != expected.end(); ++row) {
    if (row->first.seed != seed) break;
    const auto found = actual.find(row->first);
    if (found == actual.end() && was_cut) continue;
    if (found != actual.end() && found->second == row->second) continue;
    return fmt::format("completion {}: logits after position {} {}", row->first.completion,
                       row->first.position, found == actual.end() ? "are missing" : "differ");
  }
  return std::nullopt;
}

void AnswerSink::Take(const Chunk& chunk) {
  if (is_finished_ || chunk.completion >= answer_.completions.size()) {
    is_broken_ = true;
    return;
  }
  CompletionAnswer& completion = answer_.completions[chunk.completion];
  is_broken_ |= completion.finish.has_value();
  completion.tokens.insert(completion.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  completion.text += chunk.text;
  completion.finish = chunk.finish;
}

void AnswerSink::Finish(Report report) {
  is_broken_ |= is_finished_;
  for (const CompletionAnswer& completion : answer_.completions) {
    is_broken_ |= !completion.finish.has_value();
  }
  answer_.report = std::move(report);
  is_finished_ = true;
}

}  // namespace kvern::engine::one_answer
