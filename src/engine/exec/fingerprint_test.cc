#include "engine/exec/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "engine/exec/cpu.h"
#include "model/arch/architecture.h"
#include "model/golden_model.h"

namespace kvern::engine {
namespace {

using compute::KvDtype;

kv::NamespaceSpec SpecOf(const model::GoldenModelSpec& model, KvDtype k_dtype = KvDtype::kF16,
                         size_t num_threads = 1, double rope_base = 0) {
  const std::vector<std::byte> file = model::MakeGoldenModel(model);
  const model::Gguf gguf = model::Gguf::Parse(file, "golden").value();
  model::ModelConfig config = model::ReadConfig(gguf).value();
  if (rope_base > 0) config.rope_base = rope_base;
  ThreadTeam team(num_threads);
  return MakeNamespaceSpec(gguf, config, MakeKvLayout(config, k_dtype, KvDtype::kF16), team);
}

// Names of the fields that differ.
std::set<std::string> Differences(const kv::NamespaceSpec& a, const kv::NamespaceSpec& b) {
  std::set<std::string> names;
  EXPECT_EQ(a.fingerprint.size(), b.fingerprint.size());
  for (size_t i = 0; i < std::min(a.fingerprint.size(), b.fingerprint.size()); ++i) {
    EXPECT_EQ(a.fingerprint[i].name, b.fingerprint[i].name);
    if (a.fingerprint[i].value != b.fingerprint[i].value) names.insert(a.fingerprint[i].name);
  }
  return names;
}

using Names = std::set<std::string>;

TEST(FingerprintTest, NamesWhatDiffers) {
  const model::GoldenModelSpec model;
  const kv::NamespaceSpec spec = SpecOf(model);
  EXPECT_EQ(Differences(spec, SpecOf(model)), Names());
  EXPECT_EQ(Differences(spec, SpecOf(model, KvDtype::kF32)), Names({"kv.k_dtype"}));
  EXPECT_EQ(Differences(spec, SpecOf(model, KvDtype::kF16, 1, 500.0)), Names({"config.rope_base"}));
  model::GoldenModelSpec other = model;
  other.seed = 2;
  EXPECT_EQ(Differences(spec, SpecOf(other)), Names({"weights"}));
  other = model;
  other.vocab_size = 300;
  EXPECT_EQ(Differences(spec, SpecOf(other)), Names({"config.vocab_size", "tokenizer", "weights"}));
  other = model;
  other.architecture = "qwen2";
  EXPECT_TRUE(Differences(spec, SpecOf(other)).contains("config.architecture"));
}

TEST(FingerprintTest, DoesNotDependOnThreads) {
  const model::GoldenModelSpec model;
  EXPECT_EQ(Differences(SpecOf(model), SpecOf(model, KvDtype::kF16, 3)), Names());
}

TEST(FingerprintTest, IsOneThatTheLibraryTakes) {
  const auto store = kv::MakeHostStore([](kv::GroupId, std::byte*, const std::byte*, uint32_t) {});
  kv::KvCacheOptions options;
  options.groups.emplace_back().block_bytes = 64;
  options.budget_bytes = 64;
  const auto cache = kv::KvCache::Make(std::move(options), store.get()).value();
  const auto ns = cache->OpenNamespace(SpecOf({}));
  ASSERT_TRUE(ns.ok()) << ns.error().message;
  EXPECT_EQ(cache->OpenNamespace(SpecOf({})).value(), *ns);
}

}  // namespace
}  // namespace kvern::engine
