// AnswerObserver: who is told of every answer that a server gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/engine.h"

namespace kvern::server {

// What the server knows of an answer beside its report.
struct AnswerInfo {
  std::string id = {};             // "x-request-id"
  std::string_view endpoint = {};  // its route's path
  std::string tenant = {};
  double created_unix_s = 0;
  size_t prompt_tokens = 0;
  size_t completions = 1;
  std::optional<size_t> max_tokens = {};
  std::vector<TokenId> prompt_head = {};  // what its prompt begins with
};

// Any thread; those of one answer one after the other, OnFirstToken() and OnGap() perhaps before
// OnBegin(). May throw nothing but for want of memory; what is thrown is lost.
class AnswerObserver {
 public:
  virtual ~AnswerObserver() = default;

  // The engine has it, as `engine_id` (Report::id).
  virtual void OnBegin(const AnswerInfo& /*info*/, uint64_t /*engine_id*/) {}
  virtual void OnFirstToken(int64_t /*ttft_us*/) {}
  virtual void OnGap(int64_t /*gap_us*/) {}  // between two chunks of one answer
  virtual void OnEnd(const AnswerInfo& /*info*/, const Report& /*report*/,
                     std::optional<FinishReason> /*finish of completion 0*/) {}
};

}  // namespace kvern::server
