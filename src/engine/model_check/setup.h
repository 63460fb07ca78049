// The engines that the model checker tries: small pools and steps, so that preemption, waiting and
// refusal happen all the time. One row of a table for each. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvern/engine.h"
#include "kvern/kv_store.h"

namespace kvern::engine::model_check {

struct EngineSetup {
  std::string_view name;
  std::string_view help;
  SchedulerOptions scheduler = {};
  SpeculationOptions speculation = {};
  std::vector<kv::GroupSpec> groups = {};  // none: one of full attention
  size_t num_blocks = 48;
  std::string_view eviction = "lru";
  size_t context = 480;  // tokens
  size_t mean_prompt = 60;
  size_t mean_new = 16;
  size_t max_live = 12;    // requests; beyond it nobody comes
  size_t span_blocks = 0;  // that a tenant may protect
  bool has_proposer = false;
  bool has_quotas = false;    // of the tenants, which change
  bool has_tier = false;      // slow, reordering, failing and damaging
  bool has_faults = false;    // slices that fail, steps that are refused, sinks that throw
  bool has_overlong = false;  // requests that can never fit
};

std::span<const EngineSetup> Setups();

// None of that name: null.
const EngineSetup* FindSetup(std::string_view name);

}  // namespace kvern::engine::model_check
