#include "engine/model_check/setup.h"

#include "engine/model_check/fake_model.h"

namespace kvern::engine::model_check {
namespace {

std::vector<EngineSetup> MemorySetups() {
  return {
      {.name = "plain",
       .help = "room for a few requests, steps of 64 tokens",
       .scheduler = {.step_tokens = 64}},
      {.name = "tight",
       .help = "a pool that two sequences fill: preemption by the dozen",
       .scheduler = {.step_tokens = 96, .watermark = 0},
       .num_blocks = 20,
       .context = 300,
       .mean_new = 60,
       .has_overlong = true},
      {.name = "roomy",
       .help = "long common prefixes, no eviction, large steps",
       .scheduler = {.step_tokens = 2048},
       .num_blocks = 2048,
       .context = 1200,
       .mean_prompt = 300,
       .max_live = 24},
      {.name = "small-steps",
       .help = "steps of 16 tokens, a high watermark, lfu",
       .scheduler = {.step_tokens = 16, .watermark = 0.3},
       .eviction = "lfu"},
      {.name = "window",
       .help = "a full and a window group",
       .scheduler = {.step_tokens = 64},
       .groups = {FullGroup(), WindowGroup(40, 8)},
       .num_blocks = 80},
      {.name = "spans",
       .help = "spans that are protected, s3fifo",
       .scheduler = {.step_tokens = 128},
       .num_blocks = 30,
       .eviction = "s3fifo",
       .context = 300,
       .span_blocks = 8},
      {.name = "quotas",
       .help = "tenants with shares and floors that change",
       .scheduler = {.step_tokens = 96},
       .num_blocks = 30,
       .context = 300,
       .mean_new = 30,
       .has_quotas = true},
      {.name = "quotas-window",
       .help = "the same in two groups, with priorities and drafts",
       .scheduler = {.policy = "priority", .step_tokens = 96, .ageing_us = 30'000},
       .speculation = {.max_draft = 4},
       .groups = {FullGroup(), WindowGroup(40, 8)},
       .num_blocks = 100,
       .context = 300,
       .mean_new = 30,
       .has_proposer = true,
       .has_quotas = true},
  };
}

std::vector<EngineSetup> TierSetups() {
  return {
      {.name = "tier",
       .help = "a tier below RAM that is slow, reorders, loses and damages",
       .scheduler = {.step_tokens = 128},
       .num_blocks = 24,
       .context = 300,
       .has_tier = true},
      {.name = "tier-window",
       .help = "a tier, and groups that scatter the pool's room: what is loaded comes back to it",
       .scheduler = {.policy = "priority", .step_tokens = 96, .ageing_us = 30'000},
       .groups = {FullGroup(), WindowGroup(40, 8)},
       .num_blocks = 60,
       .has_tier = true},
      {.name = "tier-window-drafts",
       .help = "the same with long answers, drafts and requests that can never fit",
       .scheduler = {.policy = "priority", .step_tokens = 96, .ageing_us = 30'000},
       .speculation = {.max_draft = 4},
       .groups = {FullGroup(), WindowGroup(40, 8)},
       .num_blocks = 60,
       .context = 300,
       .mean_new = 60,
       .has_proposer = true,
       .has_tier = true,
       .has_overlong = true},
  };
}

std::vector<EngineSetup> ScheduleSetups() {
  return {
      {.name = "few-seats",
       .help = "three sequences at most, four requests wait at most, priorities age fast",
       .scheduler = {.policy = "priority",
                     .step_tokens = 48,
                     .max_running = 3,
                     .max_waiting = 4,
                     .ageing_us = 20'000},
       .max_live = 16},
      {.name = "adaptive",
       .help = "prefill adapts to the time between tokens",
       .scheduler = {.step_tokens = 512, .target_token_us = 700},
       .num_blocks = 64,
       .mean_prompt = 120},
      {.name = "prefix-first",
       .help = "longest cached prefix first",
       .scheduler = {.policy = "lpm", .step_tokens = 64, .max_running = 4, .ageing_us = 50'000},
       .num_blocks = 40,
       .max_live = 20},
      {.name = "drafts",
       .help = "speculation of fixed length",
       .scheduler = {.step_tokens = 64},
       .speculation = {.max_draft = 5, .adaptive = false},
       .num_blocks = 40,
       .mean_new = 40,
       .has_proposer = true},
      {.name = "drafts-adaptive",
       .help = "speculation that adapts, in a tight pool, with windows",
       .scheduler = {.step_tokens = 40, .watermark = 0.05},
       .speculation = {.max_draft = 8},
       .groups = {FullGroup(), WindowGroup(24, 9)},
       .num_blocks = 50,
       .context = 300,
       .mean_new = 50,
       .has_proposer = true},
      {.name = "faults",
       .help = "steps and slices that fail, readers that throw",
       .scheduler = {.step_tokens = 64},
       .speculation = {.max_draft = 3},
       .num_blocks = 32,
       .has_proposer = true,
       .has_faults = true,
       .has_overlong = true},
      {.name = "all",
       .help = "everything at once",
       .scheduler = {.policy = "priority",
                     .step_tokens = 80,
                     .target_token_us = 600,
                     .max_running = 6,
                     .max_waiting = 6,
                     .ageing_us = 30'000},
       .speculation = {.max_draft = 4},
       .num_blocks = 28,
       .eviction = "cost",
       .context = 300,
       .mean_new = 30,
       .max_live = 20,
       .span_blocks = 4,
       .has_proposer = true,
       .has_tier = true,
       .has_faults = true,
       .has_overlong = true},
  };
}

std::vector<EngineSetup> MakeSetups() {
  std::vector<EngineSetup> all = MemorySetups();
  for (const auto& more : {TierSetups(), ScheduleSetups()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (EngineSetup& setup : all) {
    if (setup.groups.empty()) setup.groups = {FullGroup()};
    if (setup.has_proposer) setup.speculation.proposer = "ngram";
  }
  return all;
}

}  // namespace

std::span<const EngineSetup> Setups() {
  static const std::vector<EngineSetup> setups = MakeSetups();
  return setups;
}

const EngineSetup* FindSetup(std::string_view name) {
  for (const EngineSetup& setup : Setups()) {
    if (setup.name == name) return &setup;
  }
  return nullptr;
}

}  // namespace kvern::engine::model_check
