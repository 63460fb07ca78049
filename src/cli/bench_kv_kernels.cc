// Attention and stores apart from the rest of the model.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/rng.h"
#include "cli/bench_attention.h"
#include "cli/bench_kv_cases.h"
#include "compute/attention.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;

constexpr uint32_t kDecodeContext = 8192;
constexpr uint32_t kAttendedPrompts[] = {512, 2048};
constexpr uint32_t kPromptTokens = 8192;  // in all layers of a run together: a plan serves many
// K and V in f16 of the context: as many layers as exceed caches.
constexpr size_t kStreamedBytes = size_t{256} << 20;
constexpr uint32_t kStoredTokens = kChunkTokens;
constexpr uint64_t kStoredSeed = 1;

double SecondsOf(const auto& run) {
  const auto start = Stopwatch::now();
  run();
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

// The same number for every type.
uint32_t NumLayers(const model::ModelConfig& config, uint32_t context) {
  const size_t layer_bytes = size_t{4} * config.num_kv_heads * config.head_dim * context;
  return static_cast<uint32_t>(
      std::min<size_t>(config.num_layers, kStreamedBytes / layer_bytes + 1));
}

using Benches = std::vector<std::unique_ptr<AttentionBench>>;

KvCase AttentionCase(KvBenchModel& model, const std::shared_ptr<Benches>& benches, KvCase kv_case,
                     std::function<void(AttentionBench&, ThreadTeam&)> run) {
  kv_case.run = [&model, benches, run = std::move(run)](size_t type) -> Result<double> {
    return SecondsOf([&] { run(*(*benches)[type], model.team()); });
  };
  return kv_case;
}

// What a case of stores works on: rows of one layer, and the planes that they go to.
struct StoredRows {
  compute::KvLayout layout;
  AlignedBuffer blocks;
  std::vector<float> rows;  // [token][head][head_dim]
};

using StoreFunction = bool (*)(const float* row, uint32_t head_dim, uint32_t slot,
                               std::byte* plane);

void StoreRows(StoredRows& data, StoreFunction store, bool is_key) {
  const compute::KvLayout& layout = data.layout;
  const float* row = data.rows.data();
  for (uint32_t token = 0; token < kStoredTokens; ++token) {
    std::byte* const block = data.blocks.data() + token / kBlockTokens * layout.block_bytes();
    for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
      const size_t offset = is_key ? layout.k_offset(0, head) : layout.v_offset(0, head);
      store(row, layout.head_dim, token % kBlockTokens, block + offset);
      row += layout.head_dim;
    }
  }
}

Result<StoredRows> MakeStoredRows(compute::KvLayout layout) {
  layout.num_layers = 1;
  StoredRows data = {.layout = layout, .blocks = {}, .rows = {}};
  KVERN_ASSIGN_OR_RETURN(
      data.blocks, AlignedBuffer::Create(kStoredTokens / kBlockTokens * layout.block_bytes()));
  data.rows.resize(size_t{kStoredTokens} * layout.num_kv_heads * layout.head_dim);
  SplitMix64 random(kStoredSeed);
  for (float& value : data.rows) value = static_cast<float>(random.Uniform() * 2 - 1);
  return data;
}

}  // namespace

Result<std::vector<KvCase>> AttentionCases(KvBenchModel& model, const std::vector<KvRig>& rigs,
                                           const KvCaseOptions& options) {
  const uint32_t longest = *std::ranges::max_element(kAttendedPrompts);
  const uint32_t context = std::max(kDecodeContext, options.prefix + kChunkTokens);
  const auto benches = std::make_shared<Benches>();
  for (const KvRig& rig : rigs) {
    compute::KvLayout layout = rig.layout;
    layout.num_layers = NumLayers(model.config(), context);
    KVERN_ASSIGN_OR_RETURN(
        auto bench, AttentionBench::Create({.isa = &model.isa(),
                                            .layout = layout,
                                            .num_heads = model.config().num_heads,
                                            .context = context,
                                            .max_rows = std::max(longest, options.num_sequences),
                                            .max_threads = model.team().size()}));
    benches->push_back(std::move(bench));
  }
  std::vector<KvCase> cases;
  const auto add = [&](KvCase kv_case, auto run) {
    cases.push_back(AttentionCase(model, benches, std::move(kv_case), run));
  };
  add({.key = "attention_decode",
       .title = fmt::format("attention, decode at {}", kDecodeContext),
       .depth = kDecodeContext},
      [](AttentionBench& bench, ThreadTeam& team) { bench.Decode(team, kDecodeContext); });
  add({.key = "attention_shared",
       .title = fmt::format("attention, {} sharing {}", options.num_sequences, options.prefix),
       .depth = options.prefix},
      [count = options.num_sequences, prefix = options.prefix](
          AttentionBench& bench, ThreadTeam& team) { bench.DecodeShared(team, count, prefix); });
  for (const uint32_t length : kAttendedPrompts) {
    const uint32_t layers =
        std::min(NumLayers(model.config(), context), std::max(kPromptTokens / length, 1u));
    add({.key = fmt::format("attention_prefill_{}", length),
         .title = fmt::format("attention, prefill of {}", length),
         .work = 1.0 * layers},
        [length, layers](AttentionBench& bench, ThreadTeam& team) {
          bench.Prefill(team, length, layers);
        });
  }
  return cases;
}

Result<std::vector<KvCase>> StoreCases(KvBenchModel& model, const std::vector<KvRig>& rigs) {
  const auto data = std::make_shared<std::vector<StoredRows>>();
  for (const KvRig& rig : rigs) {
    KVERN_ASSIGN_OR_RETURN(StoredRows rows, MakeStoredRows(rig.layout));
    data->push_back(std::move(rows));
  }
  const auto alone = std::make_shared<ThreadTeam>(1);  // for its floating-point environment
  const compute::AttentionKernels& kernels = *model.isa().attention;
  std::vector<KvCase> cases;
  for (const bool is_key : {true, false}) {
    const auto run = [&kernels, data, alone, is_key](size_t type) -> Result<double> {
      StoredRows& rows = (*data)[type];
      const auto store = is_key ? kernels.Of(rows.layout.k_dtype).store_k
                                : kernels.Of(rows.layout.v_dtype).store_v;
      return SecondsOf([&] { alone->Run([&](size_t) { StoreRows(rows, store, is_key); }); });
    };
    cases.push_back({.key = is_key ? "store_k" : "store_v",
                     .title = is_key ? "storing a row of K" : "storing a row of V",
                     .unit = KvUnit::kNanoseconds,
                     .work = 1.0 * kStoredTokens * model.config().num_kv_heads,
                     .run = run});
  }
  return cases;
}

}  // namespace kvern::cli
