// The fixed set of requests that are answered in every way: prompts from one token to 4,000, out of
// the project's own docs, with common prefixes of all kinds, and every parameter of sampling.
//
// Some are made of what others are answered (stop texts that come, conversations that go on), so
// the set is made beside a function that answers. Plain data otherwise.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/exec/one_answer/answer.h"
#include "kvern/engine.h"
#include "text/tokenizer.h"

namespace kvern::engine::one_answer {

struct Case {
  std::string name;
  Request request;  // with tokens, and a seed of its own
  // Answered in CI too: short, and together every parameter.
  bool is_short = false;
  // Greedy without penalties or bias, so that a draft model that says the same is always right.
  bool is_plain_greedy = false;
  // Its answer ends with a stop or end token, or a stop text.
  bool is_stopped = false;
};

// Answers a request alone.
using AnswerFunction = std::function<Result<RequestAnswer>(const Request& request)>;

// The tokens of the docs, in a fixed order. Errors: those of reading the files.
Result<std::vector<TokenId>> ReadDocs(const text::Tokenizer& tokenizer, const std::string& folder);

// Errors: those of `answer`; kUnsupported where an answer has nothing to make a stop of.
Result<std::vector<Case>> MakeCases(const text::Tokenizer& tokenizer, std::span<const TokenId> docs,
                                    const AnswerFunction& answer);

// Requests that arrive together with one prefix and private tails of various lengths, each tail
// different from its first token on.
struct SharedPrefixLoad {
  size_t prefix_tokens = 2048;
  size_t num_requests = 32;
  size_t max_tokens = 16;
  std::vector<Case> cases = {};
};
SharedPrefixLoad MakeSharedPrefixLoad(std::span<const TokenId> docs);

}  // namespace kvern::engine::one_answer
