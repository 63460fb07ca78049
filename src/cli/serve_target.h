// ServeTarget: who answers the requests of a workload. The two are an engine in this process
// (serve_engine_target.h) and a server at a URL (serve_url_target.h).
//
// Requests are greedy and go on after end tokens: replies have the planned length. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/engine.h"

namespace kvern::cli {

enum class Outcome {
  kDone,
  kEnded,    // cancelled as planned
  kRefused,  // too much waits, or it could never fit
  kFailed,
  kNotSent,  // the time was up, or what it waited for had failed
};

struct AskedRequest {
  std::vector<TokenId> prompt;
  uint32_t new_tokens = 1;
  bool use_cache = true;      // false: takes nothing from others, and gives them nothing
  bool needs_tokens = false;  // the ids of the reply, which a later prompt quotes
};

// Tokens that came together. Those whose ids the target does not know are counted only.
struct AnswerPiece {
  size_t num_tokens = 0;
  std::span<const SampledToken> tokens = {};
};

struct AnswerEnd {
  Outcome outcome = Outcome::kDone;
  std::optional<Error> error = {};        // of one that was refused or has failed
  std::string failed_by = {};             // what kind that is, such as "503"; empty: nothing said
  std::optional<size_t> num_tokens = {};  // of the reply; none: those of the pieces
  std::vector<SampledToken> tokens = {};  // of the reply, where pieces had none
  std::optional<size_t> cached_tokens = {};
  std::optional<int64_t> queue_us = {};
  size_t blocks_peak = 0;
};

class PendingAnswer {
 public:
  virtual ~PendingAnswer() = default;
  virtual void Cancel() = 0;
  // Once; no piece comes after it.
  virtual AnswerEnd Wait() = 0;
};

// What a target tells of its engine beside answers.
enum class EngineView {
  kNothing,
  kMetrics,  // what a server's /metrics has
  kAll,
};

class ServeTarget {
 public:
  virtual ~ServeTarget() = default;

  // `on_piece` is called on a thread of the target's, piece by piece; it may be empty.
  virtual std::unique_ptr<PendingAnswer> Ask(
      AskedRequest request, std::function<void(const AnswerPiece& piece)> on_piece) = 0;

  // Tokens of a text; `add_special`: at the beginning of a prompt.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special) = 0;

  virtual EngineView view() const = 0;
  // Empty, but for what view() says. Errors: the target does not tell it any more.
  virtual Result<EngineStats> Stats() = 0;
  virtual std::chrono::milliseconds stats_period() const = 0;

  // For people: which server, and its model. Empty: an engine in this process.
  virtual std::string description() const = 0;
};

}  // namespace kvern::cli
