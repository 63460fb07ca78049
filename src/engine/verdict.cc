#include "engine/verdict.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/byte_text.h"

namespace kvern::engine {
namespace {

// A tenth of the steps is what a run can lose before it shows in its speed.
constexpr double kBoundShare = 0.1;
constexpr double kWorthSaying = 0.05;
constexpr double kFewRunning = 4;
constexpr double kMuchOverhead = 0.02;

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

size_t MissedFor(const EngineStats& stats, kv::MissReason reason) {
  return stats.kv.prompts.miss[static_cast<size_t>(reason)];
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

void Subtract(kv::PromptSplit& split, const kv::PromptSplit& before) {
  split.ram -= before.ram;
  split.tier -= before.tier;
  split.in_flight -= before.in_flight;
  split.partial -= before.partial;
  for (size_t i = 0; i < split.miss.size(); ++i) split.miss[i] -= before.miss[i];
}

class Adviser {
 public:
  Adviser(const Load& load, const std::optional<EngineOptions>& options, Verdict& verdict)
      : load_(load), stats_(load.engine), options_(options), verdict_(verdict) {}

  void Advise() {
    if (verdict_.bound == Bound::kKv) AdviseMemory();
    if (verdict_.bound == Bound::kQueue) AdviseTurns();
    AdviseCache();
    if (verdict_.bound != Bound::kKv) AdviseCompute();
    if (const double overhead = OverheadShare(stats_); overhead > kMuchOverhead) {
      Say(fmt::format("larger steps: {} of the time is bookkeeping, for {:.0f} tokens a step",
                      Percent(overhead), verdict_.tokens_per_step));
    }
  }

 private:
  void Say(std::string lever) { verdict_.levers.push_back(std::move(lever)); }

  void AdviseMemory() {
    Say(fmt::format("more KV memory: {} now; about {} would have kept everybody running",
                    FormatBytes(stats_.kv.budget_bytes), FormatBytes(load_.peak_wanted_bytes)));
    if (stats_.preemptions > 0) {
      Say(fmt::format(
          "fewer at once ({}, {:.0f} on average): {} preemptions computed {} tokens again",
          options_ ? "--max-running" : "--parallel", load_.mean_running, stats_.preemptions,
          stats_.kv.resumes.missed()));
    }
  }

  void AdviseTurns() {
    if (!options_) {
      return Say(fmt::format(
          "more at once (--parallel) or a larger -b: {:.1f} sequences ran, {:.0f} tokens a step",
          load_.mean_running, verdict_.tokens_per_step));
    }
    const size_t max_running = options_->scheduler.max_running;
    if (load_.peak_running >= max_running) {
      Say(fmt::format("more at once: all {} of --max-running ran, and others waited", max_running));
      return;
    }
    const double budget = static_cast<double>(options_->scheduler.step_tokens);
    const double fill = verdict_.tokens_per_step / budget;
    if (options_->scheduler.target_token_us > 0) {
      Say(fmt::format(
          "a longer --target-token-ms: prompts waited for steps that it keeps at {:.0f} "
          "tokens",
          verdict_.tokens_per_step));
    } else {
      Say(
          fmt::format("a larger -b ({:.0f} tokens a step, {} filled) shares the weights among more "
                      "tokens, and lengthens the time between tokens",
                      budget, Percent(fill)));
    }
  }

  void AdviseCache() {
    const double prompts =
        static_cast<double>(stats_.kv.prompts.hit() + stats_.kv.prompts.missed());
    const auto share = [&](kv::MissReason reason) {
      return Share(static_cast<double>(MissedFor(stats_, reason)), prompts);
    };
    if (const double off = share(kv::MissReason::kPolicyOff); off > kWorthSaying) {
      Say(fmt::format("the prefix cache: off for {} of the prompt tokens", Percent(off)));
    }
    const double evicted = share(kv::MissReason::kEvicted) + share(kv::MissReason::kUnknown);
    if (evicted > kWorthSaying) {
      Say(fmt::format(
          "more KV memory, or --policy lpm: {} of the prompt tokens had been cached and "
          "were evicted",
          Percent(evicted)));
    }
    if (const double other = share(kv::MissReason::kOtherNamespace); other > kWorthSaying) {
      Say(fmt::format("one cache group: {} of the prompt tokens are cached for others only",
                      Percent(other)));
    }
  }

  void AdviseCompute() {
    const double computed = static_cast<double>(stats_.prefilled_tokens + stats_.decoded_tokens);
    const double prefill = Share(static_cast<double>(stats_.prefilled_tokens), computed);
    const bool speculates =
        options_ ? options_->speculation.proposer != "none" : stats_.drafted_tokens > 0;
    if (speculates && stats_.drafted_tokens > 0) {
      Say(fmt::format("speculation is on: {} of {} drafted tokens were accepted",
                      Percent(Share(static_cast<double>(stats_.accepted_tokens),
                                    static_cast<double>(stats_.drafted_tokens))),
                      stats_.drafted_tokens));
    } else if (!speculates && load_.mean_running > 0 && load_.mean_running <= kFewRunning &&
               prefill < 0.5) {
      Say(
          fmt::format("speculation (--speculation ngram): {:.1f} sequences at once leave most of a "
                      "step's arithmetic unused",
                      load_.mean_running));
    }
    if (prefill >= 0.5) {
      Say(
          fmt::format("prompts that share more, or a faster machine: {} of the computed tokens are "
                      "prompts, {:.0f} tokens a step",
                      Percent(prefill), verdict_.tokens_per_step));
    }
    if (verdict_.levers.empty()) {
      Say(
          fmt::format("a faster machine, or fewer bits a weight: {:.1f} sequences at once, {:.0f} "
                      "tokens a step",
                      load_.mean_running, verdict_.tokens_per_step));
    }
  }

  const Load& load_;
  const EngineStats& stats_;
  const std::optional<EngineOptions>& options_;
  Verdict& verdict_;
};

}  // namespace

double OverheadShare(const EngineStats& stats) {
  const double overhead = static_cast<double>(stats.schedule_us + stats.commit_us);
  const double all = overhead + static_cast<double>(stats.execute_us);
  return all > 0 ? overhead / all : 0;
}

EngineStats Since(const EngineStats& before, const EngineStats& after) {
  EngineStats since = after;
  for (uint64_t EngineStats::*const counter :
       {&EngineStats::requests, &EngineStats::refused, &EngineStats::finished,
        &EngineStats::cancelled, &EngineStats::failed, &EngineStats::steps,
        &EngineStats::steps_kv_bound, &EngineStats::steps_queue_bound,
        &EngineStats::prefilled_tokens, &EngineStats::decoded_tokens, &EngineStats::drafted_tokens,
        &EngineStats::accepted_tokens, &EngineStats::preemptions, &EngineStats::self_checks,
        &EngineStats::self_check_failures}) {
    since.*counter -= before.*counter;
  }
  for (int64_t EngineStats::*const time :
       {&EngineStats::kv_bound_us, &EngineStats::queue_bound_us, &EngineStats::compute_bound_us,
        &EngineStats::schedule_us, &EngineStats::execute_us, &EngineStats::commit_us}) {
    since.*time -= before.*time;
  }
  Subtract(since.kv.prompts, before.kv.prompts);
  Subtract(since.kv.resumes, before.kv.resumes);
  for (size_t i = 0; i < since.kv.evicted_blocks.size(); ++i) {
    since.kv.evicted_blocks[i] -= before.kv.evicted_blocks[i];
  }
  since.kv.num_prompts -= before.kv.num_prompts;
  since.kv.num_resumes -= before.kv.num_resumes;
  since.kv.blocks_published -= before.kv.blocks_published;
  since.kv.blocks_merged -= before.kv.blocks_merged;
  since.kv.rows_copied -= before.kv.rows_copied;
  since.kv.one_answer_violations -= before.kv.one_answer_violations;
  return since;
}

size_t WantedBytes(const kv::StateCounts& bytes, size_t running, size_t waiting) {
  if (running == 0) return 0;
  const double held = static_cast<double>(bytes.active + bytes.reserved);
  return static_cast<size_t>(held * static_cast<double>(running + waiting) /
                             static_cast<double>(running));
}

std::string_view ToString(Bound bound) {
  switch (bound) {
    case Bound::kKv:
      return "KV-bound";
    case Bound::kQueue:
      return "queue-bound";
    case Bound::kCompute:
      return "compute-bound";
  }
  return "";
}

Verdict Judge(const Load& load, const std::optional<EngineOptions>& options) {
  const EngineStats& stats = load.engine;
  const double steps = static_cast<double>(stats.steps);
  Verdict verdict;
  verdict.kv_share = Share(static_cast<double>(stats.steps_kv_bound), steps);
  verdict.queue_share = Share(static_cast<double>(stats.steps_queue_bound), steps);
  verdict.tokens_per_step =
      Share(static_cast<double>(stats.prefilled_tokens + stats.decoded_tokens), steps);
  if (verdict.kv_share >= kBoundShare) {
    verdict.bound = Bound::kKv;
  } else if (verdict.queue_share >= kBoundShare) {
    verdict.bound = Bound::kQueue;
  }
  Adviser(load, options, verdict).Advise();
  return verdict;
}

}  // namespace kvern::engine
