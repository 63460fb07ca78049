#include "engine/model_check/client.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/hash.h"
#include "kv/model_check/content.h"

namespace kvern::engine::model_check {
namespace {

using kv::model_check::Fail;
using kv::model_check::Require;

bool IsSame(const SampledToken& a, const SampledToken& b) {
  const auto is_same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.id == y.id && std::bit_cast<uint32_t>(x.logprob) == std::bit_cast<uint32_t>(y.logprob);
  };
  return is_same({a.id, a.logprob}, {b.id, b.logprob}) && std::ranges::equal(a.top, b.top, is_same);
}

}  // namespace

Client::Client(Request request, const EndRules* rules, const FakeModel* model,
               const FakeClock* clock, Reading reading)
    : request_(std::move(request)), clock_(*clock), reading_(reading) {
  arrival_us = clock_.now_us();
  NaiveText prompt(model);
  for (const TokenId token : request_.tokens) prompt.Append(token);
  completions_.reserve(request_.n);
  for (uint32_t i = 0; i < request_.n; ++i) {
    completions_.push_back({NaiveAnswer(&request_, rules, prompt, i)});
  }
}

void Client::Add(uint64_t number) { trace_ = Hash64(std::as_bytes(std::span(&number, 1)), trace_); }

void Client::Take(const Chunk& chunk) {
  Require(!is_finished(), "request {} gets a chunk after its end", request_.sampling.seed);
  Require(chunk.completion < completions_.size(), "a chunk of completion {} of {}",
          chunk.completion, completions_.size());
  Progress& progress = completions_[chunk.completion];
  Require(!progress.finish, "a chunk of a completion that has ended");
  Require(!chunk.tokens.empty() || chunk.finish, "a chunk of nothing");
  for (const SampledToken& token : chunk.tokens) CheckToken(token, progress);
  if (chunk.finish) CheckFinish(*chunk.finish, progress);
  Add(chunk.completion);
  for (const SampledToken& token : chunk.tokens) Add(static_cast<uint64_t>(token.id));
  Add(chunk.finish ? 1 + static_cast<uint64_t>(*chunk.finish) : 0);
  Add(static_cast<uint64_t>(clock_.now_us()));
  ++num_queued_;
  if (num_taken_++ == reading_.throws_at) {
    has_thrown_ = true;
    throw std::runtime_error("the reader cannot bear it");
  }
}

void Client::CheckToken(const SampledToken& token, Progress& progress) const {
  const size_t index = progress.answer.num_tokens();
  const auto expected = progress.answer.Next();
  if (!expected) {
    Fail(
        fmt::format("completion {} of request {} should end with {} after {} tokens, but goes on "
                    "with {}",
                    &progress - completions_.data(), static_cast<uint64_t>(id),
                    ToString(*progress.answer.finish()), index, static_cast<uint32_t>(token.id)));
  }
  Require(IsSame(token, *expected),
          "wrong answer: token {} of completion {} of request {}, after a prompt of {}, is {} ({}) "
          "instead of {} ({})",
          index, &progress - completions_.data(), static_cast<uint64_t>(id), request_.tokens.size(),
          static_cast<uint32_t>(token.id), token.logprob, static_cast<uint32_t>(expected->id),
          expected->logprob);
}

void Client::CheckFinish(FinishReason finish, Progress& progress) const {
  progress.finish = finish;
  switch (finish) {
    case FinishReason::kStop:
    case FinishReason::kLength: {
      const auto next = progress.answer.Next();
      Require(!next, "a completion ends with {} where token {} should follow", ToString(finish),
              next ? static_cast<uint32_t>(next->id) : 0);
      Require(progress.answer.finish() == finish, "a completion ends with {} instead of {}",
              ToString(finish), ToString(*progress.answer.finish()));
      return;
    }
    case FinishReason::kCancelled:
      Require(is_cancelled, "request {} was cancelled by nobody", static_cast<uint64_t>(id));
      return;
    case FinishReason::kDeadline:
      Require(request_.deadline_us && clock_.now_us() >= arrival_us + *request_.deadline_us,
              "request {} met a deadline that has not come", static_cast<uint64_t>(id));
      return;
    case FinishReason::kFailed:
      return;  // the simulation knows what may fail
  }
}

void Client::Finish(Report report) {
  Require(!is_finished(), "a request finishes twice");
  for (const Progress& progress : completions_) {
    Require(progress.finish.has_value() || has_thrown_,
            "a request finishes before its completions");
  }
  CheckReport(report);
  CheckEvents(report);
  for (const LifecycleEvent& event : report.events) {
    Add(static_cast<uint64_t>(event.kind));
    Add(static_cast<uint64_t>(event.time_us));
    Add(event.amount);
  }
  report_ = std::move(report);
}

void Client::CheckReport(const Report& report) const {
  const bool has_failed = has_finish(FinishReason::kFailed) || has_thrown_;
  Require(report.error.has_value() == has_failed, "a report has {} error where {} failed",
          report.error ? "an" : "no", has_failed ? "a completion" : "nothing");
  Require(report.seed == *request_.seed, "a report has the seed {}", report.seed);
  Require(report.prompt_tokens == request_.tokens.size(), "{} prompt tokens are reported of {}",
          report.prompt_tokens, request_.tokens.size());
  Require(report.completion_tokens == num_tokens() || has_thrown_,
          "{} completion tokens are reported of {}", report.completion_tokens, num_tokens());
  CheckPromptSplit(report);
  Require(report.accepted_tokens <= report.drafted_tokens, "{} of {} drafts were accepted",
          report.accepted_tokens, report.drafted_tokens);
  Require(report.ttft_us.has_value() == (num_tokens() > 0) || has_thrown_,
          "the time to the first of {} tokens is {}", num_tokens(),
          report.ttft_us ? "reported" : "missing");
  const int64_t total_us = clock_.now_us() - arrival_us;
  Require(report.total_us == total_us, "a total of {} us is reported of {}",
          report.total_us.value_or(-1), total_us);
  Require(report.queue_us.value_or(0) <= total_us &&
              report.ttft_us.value_or(total_us) >= report.queue_us.value_or(0),
          "a report has a queue time of {} us and the first token after {}",
          report.queue_us.value_or(-1), report.ttft_us.value_or(-1));
  Require(num_tokens() == 0 || report.blocks_peak > 0, "tokens came without blocks");
}

void Client::CheckPromptSplit(const Report& report) const {
  const kv::PromptSplit& split = report.prompt;
  const size_t sum = split.hit() + split.missed();
  Require(sum == (report.queue_us ? report.prompt_tokens : 0),
          "a split of {} hit and {} missed for {} prompt tokens", split.hit(), split.missed(),
          report.prompt_tokens);
  size_t num_explained = 0;
  for (const kv::Miss& miss : report.misses) num_explained += miss.num_tokens;
  Require(num_explained == split.missed(), "{} of {} missed tokens are explained", num_explained,
          split.missed());
  Require(split.hit() == 0 || (request_.cache.use && !is_stranger),
          "{} tokens were found that nobody shares", split.hit());
  // Later completions compute the last token of the prompt again.
  const bool is_whole =
      report.preemptions == 0 && !report.error && num_tokens() > 0 && request_.n == 1;
  Require(!is_whole || report.prefilled_tokens == split.missed(),
          "{} tokens were prefilled, and {} were missed", report.prefilled_tokens, split.missed());
  Require(!report.queue_us || report.blocks_peak * kBlockTokens >= split.hit(),
          "{} tokens were found in {} blocks", split.hit(), report.blocks_peak);
}

void Client::CheckEvents(const Report& report) const {
  using Kind = LifecycleEvent::Kind;
  int64_t last_us = 0;
  size_t num_preempted = 0, num_ends = 0, num_first = 0;
  for (const LifecycleEvent& event : report.events) {
    Require(event.time_us >= last_us, "an event {} at {} us comes after one at {} us",
            ToString(event.kind), event.time_us, last_us);
    last_us = event.time_us;
    num_preempted += event.kind == Kind::kPreempted;
    num_first += event.kind == Kind::kFirstToken;
    num_ends += event.kind == Kind::kFinished || event.kind == Kind::kFailed;
    Require(event.completion < request_.n, "an event of completion {} of {}", event.completion,
            request_.n);
  }
  Require(!report.events.empty() && report.events[0].kind == Kind::kQueued &&
              report.events[0].amount == request_.tokens.size(),
          "the first event is not that a request was queued");
  Require(num_preempted == report.preemptions, "{} preemptions are reported, and {} in the events",
          report.preemptions, num_preempted);
  Require(num_ends == request_.n, "{} ends of {} completions in the events", num_ends, request_.n);
  Require(num_first <= request_.n, "{} first tokens of {} completions", num_first, request_.n);
}

bool Client::has_finish(FinishReason finish) const {
  return std::ranges::any_of(completions_,
                             [&](const Progress& progress) { return progress.finish == finish; });
}

size_t Client::num_tokens() const {
  size_t sum = 0;
  for (const Progress& progress : completions_) sum += progress.answer.num_tokens();
  return sum;
}

std::vector<TokenId> Client::Conversation(size_t completion) const {
  return completions_[completion].answer.text().tokens();
}

}  // namespace kvern::engine::model_check
