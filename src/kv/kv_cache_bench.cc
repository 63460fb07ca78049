// What the library's bookkeeping costs, at a million cached blocks. Blocks are 64 bytes, and the
// store neither clears nor copies them: bytes are the engine's cost, measured elsewhere.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/block_store.h"
#include "kvern/kv.h"

namespace kvern {
void RegisterBenchmarks();  // called by tests/bench/bench_main.cc
}  // namespace kvern

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kPromptTokens = 32768;
constexpr size_t kPromptBlocks = kPromptTokens / kBlockTokens;
constexpr size_t kTreeBlocks = size_t{1} << 20;

class BookkeepingStore final : public BlockStore {
 public:
  Result<Region> Allocate(size_t bytes) override { return store_.Allocate(bytes); }
  void Free(Region region) override { store_.Free(region); }
  void Zero(std::byte*, size_t) override {}
  void Copy(std::byte*, const std::byte*, size_t) override {}
  void CopyRows(GroupId, std::byte*, const std::byte*, uint32_t) override {}
  size_t bytes_held() const override { return store_.bytes_held(); }

 private:
  HostBlockStore store_{[](GroupId, std::byte*, const std::byte*, uint32_t) {}};
};

using Text = std::vector<TokenId>;

Text RandomText(std::mt19937_64& random, size_t num_tokens) {
  Text text(num_tokens);
  for (TokenId& token : text) token = TokenId{static_cast<uint32_t>(random() % 49152)};
  return text;
}

// A cache with room for `num_blocks` more than the texts that it holds.
struct Filled {
  Filled(size_t num_texts, size_t text_tokens, size_t spare_blocks, const char* eviction = "lru") {
    const size_t num_blocks = num_texts * text_tokens / kBlockTokens + spare_blocks;
    KvCacheOptions options;
    options.groups = {{.block_bytes = kBlockBytes}};
    options.budget_bytes = num_blocks * kBlockBytes;
    options.eviction = eviction;
    cache = std::move(KvCache::Make(std::move(options), &store)).value();
    ns = *cache->OpenNamespace({});
    std::mt19937_64 random(1);
    for (size_t i = 0; i < num_texts; ++i) {
      cache->SetTime(static_cast<int64_t>(i));
      texts.push_back(RandomText(random, text_tokens));
      Begin(texts.back()).Commit(text_tokens);
    }
  }

  Sequence Begin(const Text& text) {
    Lease lease = cache->Lookup({.ns = ns, .tokens = text});
    Sequence sequence = std::move(cache->Admit(lease)).value();
    CHECK(sequence.Append(std::span(text).subspan(sequence.length())).ok());
    return sequence;
  }

  BookkeepingStore store;
  std::unique_ptr<KvCache> cache;
  NamespaceId ns{};
  std::vector<Text> texts;
};

Filled& MillionBlocks() {
  static auto* const filled = new Filled(kTreeBlocks / kPromptBlocks, kPromptTokens, 1 << 16);
  return *filled;
}

// The same prompt again and again, or each of the tree's in turn.
void Lookup(benchmark::State& state, bool in_turn) {
  Filled& filled = MillionBlocks();
  size_t next = 0;
  for (auto _ : state) {
    const Text& text = filled.texts[in_turn ? next++ % filled.texts.size() : 0];
    const Lease lease = filled.cache->Lookup({.ns = filled.ns, .tokens = text});
    CHECK(lease.num_ram_tokens() == kPromptTokens);
  }
}

void ExplainText(benchmark::State& state) {
  Filled& filled = MillionBlocks();
  size_t next = 0;
  for (auto _ : state) {
    const Text& text = filled.texts[next++ % filled.texts.size()];
    benchmark::DoNotOptimize(filled.cache->Explain(filled.ns, text));
  }
}

// Decode: a token, its commit, and every 16 tokens a block and its publication. Texts of 32k
// tokens.
void AppendToken(benchmark::State& state) {
  Filled filled(1, kBlockTokens, 1 << 18);
  uint32_t token = 0;
  std::optional<Sequence> sequence;
  for (auto _ : state) {
    if (token % kPromptTokens == 0) {
      sequence.reset();
      sequence = filled.Begin({TokenId{token++}});
    }
    const TokenId next{token++};
    CHECK(sequence->Append({&next, 1}).ok());
    sequence->Commit(sequence->length());
  }
}

void Fork(benchmark::State& state) {
  Filled& filled = MillionBlocks();
  Sequence sequence = filled.Begin(filled.texts[0]);
  for (auto _ : state) {
    auto fork = std::make_unique<Sequence>(sequence.Fork());
    state.PauseTiming();  // its end is another operation
    fork.reset();
    state.ResumeTiming();
  }
}

// A full pool of a million blocks, in texts of `blocks_per_text`: each allocation evicts one.
void Evict(benchmark::State& state, size_t blocks_per_text, const char* policy) {
  Filled filled(kTreeBlocks / blocks_per_text, blocks_per_text * kBlockTokens, 0, policy);
  std::mt19937_64 random(2);
  const Text text = RandomText(random, kBlockTokens);
  Lease lease = filled.cache->Lookup({.ns = filled.ns, .tokens = text});
  Sequence sequence = std::move(filled.cache->Admit(lease, {.publish = false})).value();
  for (auto _ : state) CHECK(sequence.Append(text).ok());
}

// Not a time: bytes of metadata for each cached block, token ids and history excluded.
void MetadataBytes(benchmark::State& state, size_t blocks_per_text) {
  constexpr size_t kNumBlocks = kTreeBlocks / 4;
  const Filled filled(kNumBlocks / blocks_per_text, blocks_per_text * kBlockTokens, 0);
  const Filled empty(1, kBlockTokens, 0);
  for (auto _ : state) benchmark::DoNotOptimize(filled.cache->stats());
  const size_t bytes = filled.cache->stats().index_bytes - empty.cache->stats().index_bytes;
  state.counters["bytes_per_block"] =
      static_cast<double>(bytes) / kNumBlocks - double{kBlockTokens * sizeof(TokenId)};
}

}  // namespace
}  // namespace kvern::kv

void kvern::RegisterBenchmarks() {
  using benchmark::RegisterBenchmark;
  using benchmark::State;
  namespace kv = kvern::kv;
  for (const bool in_turn : {false, true}) {
    RegisterBenchmark(in_turn ? "lookup_32k/in_turn" : "lookup_32k/same", [=](State& state) {
      kv::Lookup(state, in_turn);
    })->Unit(benchmark::kMicrosecond);
  }
  RegisterBenchmark("explain_32k", kv::ExplainText)->Unit(benchmark::kMicrosecond);
  RegisterBenchmark("append_token", kv::AppendToken)->Iterations(4'000'000);
  RegisterBenchmark("fork_32k", kv::Fork)->Unit(benchmark::kMicrosecond)->Iterations(2000);
  constexpr size_t kNumEvictions = 500'000;
  for (const char* policy : {"lru", "lfu", "s3fifo", "cost"}) {
    RegisterBenchmark(fmt::format("evict/{}/1_block_texts", policy).c_str(), [=](State& state) {
      kv::Evict(state, 1, policy);
    })->Iterations(kNumEvictions);
  }
  for (const size_t blocks : {16, 2048}) {
    RegisterBenchmark(fmt::format("evict/lru/{}_block_texts", blocks).c_str(), [=](State& state) {
      kv::Evict(state, blocks, "lru");
    })->Iterations(kNumEvictions);
  }
  for (const size_t blocks : {1, 4, 16, 2048}) {
    RegisterBenchmark(fmt::format("metadata/{}_block_texts", blocks).c_str(), [=](State& state) {
      kv::MetadataBytes(state, blocks);
    })->Iterations(1);
  }
}
