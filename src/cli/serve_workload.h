// Workloads of `kvern bench serve`: which requests come when, and what their prompts are made of.
//
// A workload is a plan. It has lengths, texts that requests have in common and who waits for whom,
// but no tokens yet: the texts are made when the model's tokenizer is there (serve_text.h). Plans
// are pure functions of their options, and every reply has exactly the tokens that it is planned
// with, so all lengths are known before an engine is opened.
//
// To add one, write serve_<name>.cc, declare its plan here and give it a row in serve_table.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::cli {

// A piece of a prompt.
struct PromptPart {
  enum class Kind {
    kText,    // tokens of a text
    kPrompt,  // an earlier request's prompt
    kReply,   // … or what it was answered
  };
  Kind kind;
  // Of the text, or of the request. Equal texts are equal tokens, and a shorter part of one is the
  // beginning of a longer.
  uint64_t index;
  uint32_t num_tokens = 0;  // kText

  static PromptPart Text(uint64_t text, uint32_t num_tokens) {
    return {Kind::kText, text, num_tokens};
  }
  static PromptPart PromptOf(size_t request) { return {Kind::kPrompt, request}; }
  static PromptPart ReplyOf(size_t request) { return {Kind::kReply, request}; }

  bool operator==(const PromptPart&) const = default;
};

using PromptParts = std::vector<PromptPart>;

// Comes true when `request` has so many tokens of its reply, or has ended.
struct Trigger {
  size_t request;
  uint32_t num_tokens;
};

// Refers to earlier requests only, but for `ends_with`.
struct PlannedRequest {
  PromptParts prompt = {};
  uint32_t new_tokens = 0;  // at least one
  // It is due `delay_us` after the last of these came true, or after the start if there is none.
  std::vector<Trigger> after = {};
  int64_t delay_us = 0;
  // Cancelled when that request has its first token, or has ended. That is no failure.
  std::optional<size_t> ends_with = {};
};

struct Workload {
  std::vector<PlannedRequest> requests;
  std::vector<PromptParts> shared = {};  // prefixes that several have: what --warm computes before
  bool uses_cache = true;
  size_t num_left_out = 0;       // of a trace: longer than the context
  std::string description = {};  // one line
};

// Numbers that shape a workload; zero where it has no such thing.
struct WorkloadShape {
  uint32_t requests = 0;    // or sessions, documents, streams
  uint32_t turns = 0;       // of a session: one after another
  uint32_t branches = 0;    // at the same time
  uint32_t prefix = 0;      // tokens of what is shared
  uint32_t tail = 0;        // tokens that a request has for itself
  uint32_t prompt = 0;      // tokens of the long prompt
  uint32_t new_tokens = 0;  // of a reply
  uint32_t think_ms = 0;    // between a reply and the next turn
};

struct WorkloadOptions {
  WorkloadShape shape = {};
  std::string trace_file = {};
  std::optional<double> scale = {};  // of a trace's lengths; none: so that the longest fits
  uint32_t max_context = 4096;       // of a trace: tokens of a request at most
};

// Errors: kInvalidArgument names the flag; those of the trace's file.
Result<Workload> PlanSharedPrefix(const WorkloadOptions& options);
Result<Workload> PlanChat(const WorkloadOptions& options);
Result<Workload> PlanAgents(const WorkloadOptions& options);
Result<Workload> PlanDocuments(const WorkloadOptions& options);
Result<Workload> PlanMixedPrefill(const WorkloadOptions& options);
Result<Workload> PlanTrace(const WorkloadOptions& options);

// Arrivals of the requests that wait for no other: `rate` a second on average. Where the workload
// has arrival times already, their pattern is kept and stretched; else they are Poisson's.
// REQUIRES: rate > 0.
void SetArrivalRate(Workload& workload, double rate, uint64_t seed);

// Leaves out the first so many requests, which another run has sent. Errors: kInvalidArgument where
// there are no more, or a later one refers to one of them.
Status SkipRequests(Workload& workload, size_t count);

// Tokens of every prompt.
std::vector<size_t> PromptLengths(const Workload& workload);

// Of the longest request, its reply included; and of all of them together.
size_t LongestSequence(const Workload& workload);
size_t SumOfSequences(const Workload& workload);

}  // namespace kvern::cli
