#include "cli/bench_speed.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>

#include "cli/bench_memory.h"
#include "cli/bench_sequence.h"
#include "compute/quant_blocks.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;

std::string ShortCount(uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", value / 1e6);
  return fmt::format("{:.0f}K", value / 1e3);
}

Status RunOnce(BenchSequence& sequence, std::span<const TokenId> tokens, const SpeedTest& test) {
  if (test.num_prompt > 0) KVERN_RETURN_IF_ERROR(sequence.Append(tokens.first(test.num_prompt)));
  for (size_t i = test.num_prompt; i < tokens.size(); ++i) {
    KVERN_RETURN_IF_ERROR(sequence.Append(tokens.subspan(i, 1)));
  }
  return {};
}

}  // namespace

std::string TestName(const SpeedTest& test) {
  std::string name;
  if (test.num_prompt > 0) name += fmt::format("pp{}", test.num_prompt);
  if (test.num_prompt > 0 && test.num_gen > 0) name += "+";
  if (test.num_gen > 0) name += fmt::format("tg{}", test.num_gen);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  return name;
}

Result<SpeedResult> RunSpeedTest(engine::OpenedModel& model, const kv::Strategy& strategy,
                                 const SpeedTest& test, uint32_t repetitions) {
  const auto all =
      RandomTokens(kBenchSeed, test.depth + test.num_tokens(), model.config().vocab_size);
  const auto tokens = std::span(all).subspan(test.depth);
  SpeedResult result;
  result.test_time = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));

  BenchSequence sequence(&model, &strategy);
  if (test.depth > 0) KVERN_RETURN_IF_ERROR(sequence.Append(std::span(all).first(test.depth)));
  // One new token warms as well as all of them.
  SpeedTest warm_up = test;
  warm_up.num_gen = std::min(test.num_gen, 1u);
  KVERN_RETURN_IF_ERROR(RunOnce(sequence, tokens.first(warm_up.num_tokens()), warm_up));
  for (uint32_t i = 0; i < repetitions; ++i) {
    sequence.Truncate(test.depth);
    const auto start = Stopwatch::now();
    KVERN_RETURN_IF_ERROR(RunOnce(sequence, tokens, test));
    const std::chrono::duration<double, std::nano> elapsed = Stopwatch::now() - start;
    result.samples_ns.push_back(elapsed.count());
  }
  result.kv_bytes = sequence.usage().bytes_allocated;
  result.peak_rss_bytes = PeakMemoryBytes();
  return result;
}

ModelSummary Summarize(const engine::OpenedModel& model) {
  ModelSummary summary = {};
  std::map<compute::QuantType, uint64_t> params_by_type;
  for (const model::TensorInfo& tensor : model.gguf().tensors()) {
    summary.tensor_bytes += tensor.data.size();
    summary.num_params += tensor.num_elements;
    params_by_type[tensor.type] += tensor.num_elements;
  }
  const auto most = std::max_element(params_by_type.begin(), params_by_type.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  summary.type =
      fmt::format("{} {} {}", model.config().architecture, ShortCount(summary.num_params),
                  compute::GetQuantTraits(most->first).name);
  return summary;
}

}  // namespace kvern::cli
