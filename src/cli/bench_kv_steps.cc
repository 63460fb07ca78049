// Whole steps of the model: decoding and prefill at a depth, batches with private or shared rows.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/bench_kv_cases.h"
#include "cli/bench_sequence.h"
#include "kvern/paged_view.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;

constexpr uint32_t NumBlocks(uint32_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// Sequences that grow by a token each, or by a prompt.
struct StepShape {
  uint32_t num_sequences;
  uint32_t depth;  // rows before; whole chunks where they are shared
  uint32_t num_tokens;
  bool is_shared;
  bool is_prompt;  // many tokens of the sequence a step; else one of each

  uint32_t OwnBlocks() const { return NumBlocks(is_shared ? num_tokens : depth + num_tokens); }
  uint32_t SharedBlocks() const { return is_shared ? depth / kBlockTokens : 0; }
  size_t AllBlocks() const { return SharedBlocks() + size_t{num_sequences} * OwnBlocks(); }
};

// The blocks of each sequence: those that all share, then its own.
std::vector<std::vector<std::byte*>> DealBlocks(const StepShape& shape, const KvBlocks& blocks) {
  std::byte* const* const shared = blocks.pointers();
  std::byte* const* own = shared + shape.SharedBlocks();
  std::vector<std::vector<std::byte*>> tables(shape.num_sequences,
                                              {shared, shared + shape.SharedBlocks()});
  for (std::vector<std::byte*>& table : tables) {
    table.insert(table.end(), own, own + shape.OwnBlocks());
    own += shape.OwnBlocks();
  }
  return tables;
}

Status GrowSequences(engine::Executor& executor, const StepShape& shape, std::span<PagedView> views,
                     std::span<const TokenId> tokens) {
  const uint32_t step_tokens = shape.is_prompt ? executor.info().max_step_tokens : 1;
  const uint32_t shared_chunks = shape.is_shared ? shape.depth / kChunkTokens : 0;
  for (uint32_t done = 0; done < shape.num_tokens; done += step_tokens) {
    const uint32_t count = std::min(step_tokens, shape.num_tokens - done);
    std::vector<engine::Slice> slices;
    for (PagedView& view : views) {
      slices.push_back({.tokens = tokens.subspan(done, count),
                        .first_position = shape.depth + done,
                        .views = {&view, 1},
                        .num_logits = done + count == shape.num_tokens || count == 1 ? 1u : 0u});
    }
    KVERN_RETURN_IF_ERROR(RunSlices(executor, std::move(slices), shared_chunks));
  }
  return {};
}

// Memory is of one type at a time: made, filled and given back.
Result<double> TimeSteps(KvRig& rig, const StepShape& shape) {
  KVERN_ASSIGN_OR_RETURN(KvBlocks blocks, KvBlocks::Create(rig, shape.AllBlocks()));
  KVERN_RETURN_IF_ERROR(blocks.Fill(rig));
  const auto tables = DealBlocks(shape, blocks);
  std::vector<PagedView> views;
  views.reserve(tables.size());
  for (const auto& table : tables) {
    views.push_back({table.data(), static_cast<uint32_t>(table.size())});
  }
  const auto tokens = RandomTokens(kBenchSeed, shape.num_tokens, rig.executor->info().vocab_size);
  const auto start = Stopwatch::now();
  KVERN_RETURN_IF_ERROR(GrowSequences(*rig.executor, shape, views, tokens));
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

struct StepCase {
  const char* key;
  std::string title;
  StepShape shape;
};

std::vector<StepCase> ListSteps(const KvCaseOptions& options) {
  std::vector<StepCase> list;
  for (const uint32_t depth : options.depths) {
    list.push_back({"decode",
                    fmt::format("decode at {}", depth),
                    {.num_sequences = 1,
                     .depth = depth,
                     .num_tokens = options.num_new,
                     .is_shared = false,
                     .is_prompt = false}});
  }
  for (const uint32_t depth : options.depths) {
    list.push_back({"prefill",
                    fmt::format("prefill of {} at {}", options.num_prompt, depth),
                    {.num_sequences = 1,
                     .depth = depth,
                     .num_tokens = options.num_prompt,
                     .is_shared = false,
                     .is_prompt = true}});
  }
  for (const bool is_shared : {false, true}) {
    list.push_back({is_shared ? "decode_shared" : "decode_private",
                    fmt::format("decode, {} {} {}", options.num_sequences,
                                is_shared ? "sharing" : "with own", options.prefix),
                    {.num_sequences = options.num_sequences,
                     .depth = options.prefix,
                     .num_tokens = options.num_new,
                     .is_shared = is_shared,
                     .is_prompt = false}});
  }
  return list;
}

}  // namespace

std::vector<KvCase> StepCases(std::vector<KvRig>& rigs, const KvCaseOptions& options) {
  std::vector<KvCase> cases;
  for (StepCase& step : ListSteps(options)) {
    cases.push_back(
        {.key = step.key,
         .title = std::move(step.title),
         .depth = step.shape.depth,
         .unit = KvUnit::kTokensPerSecond,
         .work = 1.0 * step.shape.num_tokens * step.shape.num_sequences,
         .run = [&rigs, shape = step.shape](size_t type) { return TimeSteps(rigs[type], shape); }});
  }
  return cases;
}

size_t MostStepBlocks(const KvCaseOptions& options) {
  size_t most = 0;
  for (const StepCase& step : ListSteps(options)) most = std::max(most, step.shape.AllBlocks());
  return most;
}

}  // namespace kvern::cli
