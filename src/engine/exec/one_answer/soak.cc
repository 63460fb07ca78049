#include "engine/exec/one_answer/soak.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/exec/one_answer/engine_run.h"
#include "engine/policy.h"
#include "kv/policy.h"

namespace kvern::engine::one_answer {
namespace {

constexpr size_t kPlentyBlocks = 2048;

// How one round goes.
struct Round {
  CoreSetup setup;
  bool is_public = false;  // through the public Engine
  size_t max_case_tokens = 320;
  size_t num_requests = 0;
  size_t num_passes = 1;
  size_t cancel_percent = 0, slow_percent = 0, private_percent = 0;

  std::string ToText() const {
    constexpr const char* kDrafts[] = {"none", "ngram", "self", "random"};
    const SchedulerOptions& s = setup.scheduler;
    return fmt::format(
        "{}, K {} V {}, {} threads, steps of {}, target {} ms, {}, {} running, watermark {}, {} "
        "blocks, {}, draft {}{}; {} requests up to {} tokens, {} passes, {} % cancelled, {} % "
        "slow, "
        "{} % private",
        is_public ? "public" : "core", setup.model.k_dtype, setup.model.v_dtype,
        setup.model.num_threads, s.step_tokens, s.target_token_us / 1000, s.policy, s.max_running,
        s.watermark, setup.num_blocks, setup.eviction, kDrafts[static_cast<int>(setup.draft)],
        setup.adaptive ? " adaptive" : "", num_requests, max_case_tokens, num_passes,
        cancel_percent, slow_percent, private_percent);
  }
};

template <typename T, size_t kSize>
T Draw(SplitMix64& random, const T (&values)[kSize]) {
  return values[random.Below(kSize)];
}

Round DrawRound(SplitMix64& random) {
  Round round;
  round.is_public = random.Below(6) == 0;
  CoreSetup& setup = round.setup;
  const std::string dtype = Draw(random, {"f16", "f16", "q8r", "q8r", "f32", "bf16"});
  setup.model.k_dtype = setup.model.v_dtype = dtype;
  setup.model.num_threads = 1 + random.Below(2);
  SchedulerOptions& scheduler = setup.scheduler;
  scheduler.step_tokens = Draw<size_t>(random, {16, 33, 64, 128, 200, 512, 2048});
  scheduler.target_token_us = Draw<int64_t>(random, {0, 0, 20'000, 60'000, 150'000});
  scheduler.policy = SchedulingPolicies()[random.Below(SchedulingPolicies().size())]->name;
  scheduler.max_running = Draw<size_t>(random, {256, 256, 3, 12});
  scheduler.watermark = Draw(random, {0.0, 0.01, 0.1});
  setup.eviction = kv::Policies()[random.Below(kv::Policies().size())].name;
  setup.draft =
      Draw(random, {Draft::kNone, Draft::kNone, Draft::kNgram, Draft::kSelf, Draft::kRandom});
  setup.adaptive = random.Below(2) == 0;
  setup.num_blocks = Draw<size_t>(random, {kPlentyBlocks, kPlentyBlocks, 32, 48, 80, 160});
  round.num_requests = 4 + random.Below(40);
  if (setup.num_blocks == kPlentyBlocks && random.Below(4) == 0) {
    round.max_case_tokens = kContext;
    round.num_requests = 4 + random.Below(12);
  }
  round.num_passes = 1 + random.Below(2);
  round.cancel_percent = Draw<size_t>(random, {0, 10, 50});
  round.slow_percent = Draw<size_t>(random, {0, 0, 20});
  round.private_percent = Draw<size_t>(random, {0, 10, 30});
  return round;
}

Result<Outcome> RunRound(Lab& lab, Grid& grid, const Round& round, SplitMix64& random) {
  KVERN_ASSIGN_OR_RETURN(AnsweredSet* const set,
                         grid.SetOf(round.setup.model.k_dtype, round.setup.model.v_dtype));
  const auto happens = [&](size_t percent) { return random.Below(100) < percent; };
  std::deque<Case> cases;
  std::vector<Submission> submissions;
  while (submissions.size() < round.num_requests) {
    Case asked = set->cases[random.Below(set->cases.size())];
    const Request& request = asked.request;
    if (request.tokens.size() + request.max_tokens.value_or(0) > round.max_case_tokens) continue;
    if (happens(round.private_percent)) asked.request.cache.use = false;
    asked.request.priority = static_cast<int>(random.Below(4));
    cases.push_back(std::move(asked));
    submissions.push_back({.asked = &cases.back()});
  }
  submissions = ArriveAtRandom(std::move(submissions), random);
  for (Submission& submission : submissions) {
    if (happens(round.cancel_percent)) {
      submission.cancel_at_step = 1 + submission.at_step * !round.is_public + random.Below(60);
    }
    if (happens(round.slow_percent)) submission.room_every = 2 + random.Below(8);
  }
  Outcome outcome;
  std::unique_ptr<CoreRun> run;
  std::unique_ptr<Engine> engine;
  if (round.is_public) {
    KVERN_ASSIGN_OR_RETURN(engine, OpenEngine(&lab, round.setup));
  } else {
    KVERN_ASSIGN_OR_RETURN(run, CoreRun::Make(&lab, round.setup));
  }
  for (size_t pass = 0; pass < round.num_passes; ++pass) {
    auto answers = engine ? AnswerByEngine(*engine, submissions) : run->Answer(submissions);
    KVERN_RETURN_IF_ERROR(answers.ok() ? Status() : Status(answers.error()));
    KVERN_RETURN_IF_ERROR(CompareAnswers(set->reference, submissions, *answers,
                                         run ? &run->logits() : nullptr, outcome));
    if (!run) continue;
    if (const auto violation = run->FindViolation()) outcome.Find(*violation);
  }
  if (engine) engine->Drain();
  outcome.stats = engine ? engine->stats() : run->stats();
  if (outcome.stats.kv.bytes.active > 0) outcome.Find("blocks are active though nothing is live");
  if (outcome.stats.self_check_failures > 0) outcome.Find("a full hit was not what it should be");
  if (outcome.stats.kv.one_answer_violations > 0) outcome.Find("a block had two answers");
  return outcome;
}

}  // namespace

Status Soak(Lab& lab, Grid& grid, uint64_t seed, uint64_t minutes) {
  // Where there are no requests to be had, no round can begin.
  const auto first = grid.SetOf("f16", "f16");
  if (!first.ok()) return first.error();
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(minutes);
  size_t num_rounds = 0, num_failed = 0, num_answers = 0, num_tokens = 0;
  std::optional<uint64_t> first_failed;
  do {
    SplitMix64 random(seed + num_rounds);
    const Round round = DrawRound(random);
    fmt::print("seed {}: {}\n", seed + num_rounds, round.ToText());
    std::fflush(stdout);
    const Result<Outcome> result = RunRound(lab, grid, round, random);
    Outcome outcome;
    if (result.ok()) {
      outcome = *result;
    } else {
      outcome.Find(result.error().message);
    }
    for (const std::string& finding : outcome.findings) fmt::print("    FOUND: {}\n", finding);
    fmt::print("    {} answers, {} tokens, {} preempted, {} self-checks, hits {}\n",
               outcome.num_answers, outcome.num_tokens, outcome.stats.preemptions,
               outcome.stats.self_checks, outcome.stats.kv.prompts.hit());
    std::fflush(stdout);
    if (!outcome.findings.empty() && num_failed++ == 0) first_failed = seed + num_rounds;
    num_answers += outcome.num_answers;
    num_tokens += outcome.num_tokens;
    ++num_rounds;
  } while (std::chrono::steady_clock::now() < end);
  fmt::print("{} rounds, {} answers and {} tokens compared; {} rounds failed\n", num_rounds,
             num_answers, num_tokens, num_failed);
  if (!first_failed) return {};
  return Errorf(ErrorCode::kIo, "to see the first again: --suite soak --minutes 0 --seed {}",
                *first_failed);
}

}  // namespace kvern::engine::one_answer
