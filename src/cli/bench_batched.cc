#include "cli/bench_batched.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cli/bench_sequence.h"
#include "kv/strategy.h"
#include "kvern/paged_view.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;
using Caches = std::vector<std::unique_ptr<kv::SequenceCache>>;

constexpr size_t kWarmUpTokens = 16;

double SecondsSince(Stopwatch::time_point start) {
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

std::unique_ptr<kv::SequenceCache> MakeCache(engine::OpenedModel& model) {
  const kv::Strategy& paged = kv::Strategies().front();
  return paged.make(model.MakeCacheOptions());
}

// Computes the prompts in order, as many tokens of one or several a step as the executor takes.
Status Prefill(engine::Executor& executor, Caches& caches,
               const std::vector<std::vector<TokenId>>& prompts) {
  std::vector<StepPiece> pieces;
  size_t room = executor.info().max_step_tokens;
  const auto run = [&] {
    Status status = RunStep(executor, pieces);
    pieces.clear();
    room = executor.info().max_step_tokens;
    return status;
  };
  for (size_t i = 0; i < caches.size(); ++i) {
    std::span<const TokenId> left = prompts[i];
    while (!left.empty()) {
      const size_t count = std::min(left.size(), room);
      pieces.push_back({caches[i].get(), left.first(count), count == left.size()});
      left = left.subspan(count);
      room -= count;
      if (room == 0) KVERN_RETURN_IF_ERROR(run());
    }
  }
  return pieces.empty() ? Status() : run();
}

// The chunks that the sequences have in common, as a group of all of them.
std::optional<engine::SharedPrefix> SharedGroup(const BatchedTest& test,
                                                std::span<const uint32_t> all_slices) {
  const uint32_t num_chunks = test.num_prompt / kChunkTokens;
  if (!test.is_shared || num_chunks == 0 || test.num_sequences < 2) return std::nullopt;
  return engine::SharedPrefix{.slices = all_slices, .num_chunks = num_chunks};
}

Status Decode(engine::Executor& executor, Caches& caches, const BatchedTest& test) {
  const auto tokens =
      RandomTokens(kBenchSeed, test.num_decode_tokens(), executor.info().vocab_size);
  std::vector<uint32_t> all_slices(test.num_sequences);
  std::iota(all_slices.begin(), all_slices.end(), 0u);
  const auto group = SharedGroup(test, all_slices);
  std::span<const TokenId> left = tokens;
  while (!left.empty()) {
    std::vector<StepPiece> pieces;
    for (const auto& cache : caches) {
      pieces.push_back({cache.get(), left.first(1), true});
      left = left.subspan(1);
    }
    KVERN_RETURN_IF_ERROR(RunStep(executor, pieces, group));
  }
  return {};
}

Status WarmUp(engine::OpenedModel& model) {
  const auto cache = MakeCache(model);
  const auto tokens = RandomTokens(kBenchSeed, std::min<size_t>(kWarmUpTokens, model.context()),
                                   model.config().vocab_size);
  for (const TokenId& token : tokens) {
    const StepPiece piece = {cache.get(), {&token, 1}, true};
    KVERN_RETURN_IF_ERROR(RunStep(model.executor(), {&piece, 1}));
  }
  return {};
}

}  // namespace

size_t PoolTokens(const BatchedTest& test) {
  const size_t shared = test.is_shared ? test.num_prompt / kBlockTokens * kBlockTokens : 0;
  const size_t own = test.num_prompt + test.num_gen - shared;
  return shared + (own + kBlockTokens - 1) / kBlockTokens * kBlockTokens * test.num_sequences;
}

Result<BatchedResult> RunBatchedTest(engine::OpenedModel& model, const BatchedTest& test) {
  KVERN_RETURN_IF_ERROR(WarmUp(model));
  Caches caches;
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t i = 0; i < (test.is_shared ? 1 : test.num_sequences); ++i) {
    caches.push_back(MakeCache(model));
    prompts.push_back(RandomTokens(kBenchSeed + i, test.num_prompt, model.config().vocab_size));
  }
  BatchedResult result;
  auto start = Stopwatch::now();
  KVERN_RETURN_IF_ERROR(Prefill(model.executor(), caches, prompts));
  result.prefill_seconds = SecondsSince(start);

  while (caches.size() < test.num_sequences) {
    KVERN_ASSIGN_OR_RETURN(auto fork, caches.front()->Fork());
    caches.push_back(std::move(fork));
  }
  start = Stopwatch::now();
  KVERN_RETURN_IF_ERROR(Decode(model.executor(), caches, test));
  result.decode_seconds = SecondsSince(start);
  result.kv_bytes = model.kv_cache().stats().bytes.active;
  return result;
}

}  // namespace kvern::cli
