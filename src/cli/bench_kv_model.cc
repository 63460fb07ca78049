#include "cli/bench_kv_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "cli/bench_sequence.h"
#include "cli/progress.h"
#include "engine/exec/cpu.h"
#include "kvern/paged_view.h"

namespace kvern::cli {

KvBenchModel::KvBenchModel(const KvBenchModelOptions& options)
    : options_(options), team_(options.num_threads) {}

Result<std::unique_ptr<KvBenchModel>> KvBenchModel::Load(const model::Gguf& gguf,
                                                         const KvBenchModelOptions& options) {
  std::unique_ptr<KvBenchModel> bench(new KvBenchModel(options));
  Progress progress("Loading model");
  const auto update = [&progress](double fraction) { progress.Update(fraction); };
  KVERN_ASSIGN_OR_RETURN(model::Model model,
                         model::Model::Load(gguf, options.context, &bench->team_, update));
  bench->model_ = std::make_unique<model::Model>(std::move(model));
  return bench;
}

Result<KvRig> KvBenchModel::MakeRig(const KvTypes& types) {
  KvRig rig = {.types = types,
               .layout = engine::MakeKvLayout(config(), types.k, types.v),
               .executor = nullptr};
  KVERN_ASSIGN_OR_RETURN(rig.executor,
                         engine::MakeCpuExecutor(model_.get(), options_.isa, &team_, rig.layout,
                                                 options_.max_step_tokens));
  return rig;
}

Result<std::span<const engine::SliceOutput>> RunSlices(engine::Executor& executor,
                                                       std::vector<engine::Slice> slices,
                                                       uint32_t shared_chunks) {
  engine::StepPlan plan;
  plan.slices = std::move(slices);
  std::vector<uint32_t> all(plan.slices.size());
  std::iota(all.begin(), all.end(), 0u);
  if (shared_chunks > 0) plan.shared.push_back({.slices = all, .num_chunks = shared_chunks});
  KVERN_ASSIGN_OR_RETURN(const auto outputs, executor.Execute(plan));
  for (const engine::SliceOutput& output : outputs) KVERN_RETURN_IF_ERROR(output.status);
  return outputs;
}

Result<KvBlocks> KvBlocks::Create(const KvRig& rig, size_t num_blocks) {
  KvBlocks blocks;
  const size_t block_bytes = rig.layout.block_bytes();
  KVERN_ASSIGN_OR_RETURN(blocks.memory_, AlignedBuffer::Create(num_blocks * block_bytes));
  for (size_t i = 0; i < num_blocks; ++i) {
    blocks.pointers_.push_back(blocks.memory_.data() + i * block_bytes);
  }
  return blocks;
}

Status KvBlocks::Fill(KvRig& rig) {
  const engine::ExecutorInfo& info = rig.executor->info();
  const auto num_blocks = static_cast<uint32_t>(
      std::min<size_t>({size(), kChunkBlocks, std::max(1u, info.max_step_tokens / kBlockTokens)}));
  const uint32_t num_tokens = std::min(num_blocks * kBlockTokens, info.max_step_tokens);
  const auto tokens = RandomTokens(kBenchSeed, num_tokens, info.vocab_size);
  const PagedView view = {pointers(), num_blocks};
  KVERN_RETURN_IF_ERROR(
      RunSlices(*rig.executor, {{.tokens = tokens, .first_position = 0, .views = {&view, 1}}}));
  const size_t block_bytes = rig.layout.block_bytes();
  for (size_t i = num_blocks; i < size(); ++i) {
    std::memcpy(pointers_[i], pointers_[i % num_blocks], block_bytes);
  }
  return {};
}

}  // namespace kvern::cli
