// Answers as they are compared, bit for bit, and where a core's answers are collected.
//
// Plain data, but for AnswerSink, which belongs to one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/core.h"
#include "kvern/engine.h"

namespace kvern::engine::one_answer {

// Whose logits: a request is named by its seed, which no other request of the set has, unless it
// is answered the same.
struct LogitKey {
  uint64_t seed;
  uint32_t completion;
  uint32_t position;  // of the token that they follow

  auto operator<=>(const LogitKey&) const = default;  // NOLINT: clang-tidy's mistake
};

// A hash of each row of logits from which a token was sampled.
using LogitHashes = std::map<LogitKey, uint64_t>;

struct CompletionAnswer {
  std::vector<SampledToken> tokens;
  std::string text;
  std::optional<kvern::FinishReason> finish;
};

struct RequestAnswer {
  std::vector<CompletionAnswer> completions;
  Report report;
};

// The first difference, or none. An answer that was cut short, by Cancel(), must be how the
// expected one begins; its finish reason is not compared.
std::optional<std::string> FindDifference(const RequestAnswer& expected,
                                          const RequestAnswer& actual, bool was_cut);

// The same for logits of one request: every row of `expected` must be in `actual` (unless the
// answer was cut short), and those that both have must be equal. Rows beyond the end of an answer,
// which speculation has, are in `actual` alone.
std::optional<std::string> FindLogitDifference(const LogitHashes& expected,
                                               const LogitHashes& actual, uint64_t seed,
                                               bool was_cut);

// Collects one request's answer. Its reader may be slow: then it has room in only one of so many
// steps.
class AnswerSink final : public ReplySink {
 public:
  AnswerSink(size_t num_completions, uint64_t room_every)
      : room_every_(room_every), answer_{std::vector<CompletionAnswer>(num_completions), {}} {}

  bool HasRoom() const override { return room_every_ <= 1 || num_asked_++ % room_every_ == 0; }
  void Take(const Chunk& chunk) override;
  void Finish(Report report) override;

  bool finished() const { return is_finished_; }
  RequestAnswer& answer() { return answer_; }
  // A chunk came after the last one, or Finish() twice or too early.
  bool is_broken() const { return is_broken_; }

 private:
  const uint64_t room_every_;
  mutable uint64_t num_asked_ = 0;
  RequestAnswer answer_;
  bool is_finished_ = false;
  bool is_broken_ = false;
};

}  // namespace kvern::engine::one_answer
