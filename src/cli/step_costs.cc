#include "cli/step_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cli/progress.h"
#include "cli/reply_stats.h"
#include "cli/svg_chart.h"
#include "engine/generation.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;

constexpr size_t kPositions[] = {32, 64, 128, 256, 512, 768};
constexpr size_t kCachedSteps = 8;

struct Steps {
  std::vector<double> ms;     // of each step behind the first token
  std::vector<float> logits;  // of the first of them
  size_t kv_bytes = 0;
};

// Generates `count` tokens behind the first one, which comes out of the prefill.
Result<Steps> RunSteps(engine::OpenedModel& model, const kv::Strategy& strategy,
                       std::span<const TokenId> prompt, size_t count) {
  engine::GenerationOptions options = model.MakeGenerationOptions(strategy);
  options.end_tokens.clear();  // the text may seem complete anywhere
  engine::Generation generation(&model.executor(), std::move(options));
  engine::GenerationRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling.temperature = 0;
  request.max_new_tokens = count + 1;
  KVERN_RETURN_IF_ERROR(generation.Start(std::move(request)));
  Steps steps;
  bool is_first = true;
  auto start = Stopwatch::now();
  while (!generation.finish_reason()) {
    KVERN_ASSIGN_OR_RETURN(const auto token, generation.Step());
    if (!token) continue;
    const std::chrono::duration<double, std::milli> elapsed = Stopwatch::now() - start;
    if (!is_first) steps.ms.push_back(elapsed.count());
    if (steps.ms.size() == 1) {
      const auto logits = generation.last_logits();
      steps.logits.assign(logits.begin(), logits.end());
    }
    is_first = false;
    start = Stopwatch::now();
  }
  steps.kv_bytes = generation.cache_usage().bytes_allocated;
  return steps;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Result<std::vector<StepCost>> MeasureStepCosts(engine::OpenedModel& model,
                                               const kv::Strategy& cached,
                                               std::span<const TokenId> text) {
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* uncached, kv::FindStrategy("none"));
  Progress progress("One more token");
  std::vector<StepCost> costs;
  for (const size_t position : kPositions) {
    if (position > text.size() || position + kCachedSteps + 1 > model.context()) break;
    const auto prompt = text.first(position);
    KVERN_ASSIGN_OR_RETURN(const Steps with, RunSteps(model, cached, prompt, kCachedSteps));
    KVERN_ASSIGN_OR_RETURN(const Steps without, RunSteps(model, *uncached, prompt, 1));
    const bool is_same = std::memcmp(with.logits.data(), without.logits.data(),
                                     with.logits.size() * sizeof(float)) == 0;
    costs.push_back({position, Mean(without.ms), Mean(with.ms), with.kv_bytes, is_same});
    progress.Update(static_cast<double>(costs.size()) / static_cast<double>(std::size(kPositions)));
  }
  return costs;
}

std::string FormatStepCosts(std::span<const StepCost> costs) {
  std::string table =
      fmt::format("{:>10}  {:>16}  {:>14}  {:>7}  {:>11}  {}\n", "position", "ms without cache",
                  "ms with cache", "ratio", "KV held", "same bits");
  for (const StepCost& cost : costs) {
    table += fmt::format("{:>10}  {:>16.1f}  {:>14.1f}  {:>6.1f}×  {:>11}  {}\n", cost.position,
                         cost.uncached_ms, cost.cached_ms, cost.uncached_ms / cost.cached_ms,
                         FormatBytes(cost.kv_bytes), cost.is_same ? "yes" : "NO");
  }
  return table;
}

std::string DrawStepCosts(std::span<const StepCost> costs) {
  LineChart chart = {.title = "What one more token costs",
                     .x_label = "position (tokens)",
                     .y_label = "time of a step (ms)",
                     .lines = {{"without a KV cache", {}}, {"with the KV cache", {}}}};
  for (const StepCost& cost : costs) {
    const auto x = static_cast<double>(cost.position);
    chart.lines[0].points.push_back({x, cost.uncached_ms});
    chart.lines[1].points.push_back({x, cost.cached_ms});
  }
  return RenderSvg(chart);
}

}  // namespace kvern::cli
