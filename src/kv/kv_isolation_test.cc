// No operation lets one namespace see another's bytes (rules K5 and K12).
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kv/kv_cache_test_util.h"

namespace kvern::kv {
namespace {

constexpr size_t kBlockBytes = TestEngine::kBlockBytes;
constexpr uint32_t kWindowTokens = 20;

KvCacheOptions Hybrid() {
  KvCacheOptions options;
  options.groups = {TestEngine::FullGroup(), TestEngine::WindowGroup(kWindowTokens, 2),
                    TestEngine::StateGroup(2)};
  return options;
}

NamespaceId Open(TestEngine& engine, const char* tenant) {
  NamespaceSpec spec;
  spec.tenant = tenant;
  return *engine.cache->OpenNamespace(spec);
}

// Random work in three namespaces whose texts are alike.
class Crowd {
 public:
  explicit Crowd(uint64_t seed) : random_(seed), engine_(72, Hybrid()) {
    for (const char* tenant : {"a", "b", "c"}) namespaces_.push_back(Open(engine_, tenant));
    for (size_t group = 1; group < 3; ++group) {
      const Text text = MakeText(1);
      Sequence sequence = engine_.Admit(engine_.Lookup(text));
      if (group == 2) zeros_.insert(sequence.View(GroupId{2}).blocks[0]);
    }
    // What a window has left behind.
    const Text text = MakeText(64, 9000);
    Sequence sequence = engine_.Admit(engine_.Lookup(text), {.publish = false});
    engine_.Step(sequence, text, 64);
    zeros_.insert(sequence.View(GroupId{1}).blocks[0]);
  }

  void Step() {
    if (members_.empty() || (members_.size() < 6 && random_() % 3 == 0)) return Begin();
    const size_t index = random_() % members_.size();
    Member& member = members_[index];
    switch (random_() % 8) {
      case 0:
        if (members_.size() >= 6) return;
        members_.push_back({member.ns, member.text, member.sequence.Fork()});
        return;
      case 1: {
        const size_t length = member.sequence.length();
        const size_t target = length - std::min<size_t>(length, random_() % 20);
        if (member.sequence.Truncate(target).ok()) member.text.resize(target);
        return;
      }
      case 2:
        std::swap(member, members_.back());
        members_.pop_back();
        return;
      default:
        return Append(member, 1 + random_() % 30);
    }
  }

  void Check() {
    engine_.cache->CheckInvariants();
    std::map<const std::byte*, NamespaceId> owners;
    for (const Member& member : members_) {
      for (size_t group = 0; group < 3; ++group) {
        const PagedView view = member.sequence.View(static_cast<GroupId>(group));
        for (uint32_t i = 0; i < view.num_blocks; ++i) {
          if (zeros_.contains(view.blocks[i])) {
            ASSERT_TRUE(IsZero(view.blocks[i], kBlockBytes));
            continue;
          }
          const auto [entry, is_new] = owners.emplace(view.blocks[i], member.ns);
          ASSERT_EQ(entry->second, member.ns);
        }
      }
      engine_.ns = member.ns;
      const size_t length = member.sequence.length();
      ASSERT_TRUE(length == 0 || engine_.HoldsAll(member.sequence, member.text, length));
    }
  }

 private:
  struct Member {
    NamespaceId ns;
    Text text;
    Sequence sequence;
  };

  void Begin() {
    const NamespaceId ns = namespaces_[random_() % namespaces_.size()];
    Text text = RandomText(1 + random_() % 60);
    Lease lease = engine_.cache->Lookup({.ns = ns, .tokens = text});
    auto sequence = engine_.cache->Admit(lease);
    if (!sequence.ok()) return;
    text.resize(sequence->length());
    members_.push_back({ns, std::move(text), std::move(sequence).value()});
  }

  Text RandomText(size_t size) {
    Text text(size);
    for (TokenId& token : text) token = TokenId{random_() % 12 == 0 ? 1u : 0u};
    return text;
  }

  // New blocks must be zero, whoever had them.
  void Append(Member& member, size_t num_tokens) {
    const size_t length = member.sequence.length();
    const size_t num_blocks = member.sequence.View({}).num_blocks;
    const Text more = RandomText(num_tokens);
    if (!member.sequence.Append(more).ok()) return;
    for (const GroupId group : {GroupId{0}, GroupId{1}}) {
      const PagedView view = member.sequence.View(group);
      for (size_t i = num_blocks; i < view.num_blocks; ++i) {
        EXPECT_TRUE(IsZero(view.blocks[i], kBlockBytes));
      }
    }
    const PagedView states = member.sequence.View(GroupId{2});
    EXPECT_TRUE(IsZero(states.blocks[states.num_blocks - 1], kBlockBytes));
    member.text.insert(member.text.end(), more.begin(), more.end());
    engine_.ns = member.ns;
    engine_.Write(member.sequence, member.text, length, member.text.size());
    if (random_() % 4 > 0) member.sequence.Commit(member.text.size());
  }

  std::mt19937_64 random_;
  TestEngine engine_;
  std::vector<NamespaceId> namespaces_;
  std::set<const std::byte*> zeros_;
  std::vector<Member> members_;
};

// peer: TensorRT-LLM#8813 vllm#17045
TEST(KvIsolationTest, NoBlockIsSeenByTwoNamespacesAndFreshOnesAreZero) {
  const uint64_t first_seed = std::random_device{}();
  for (uint64_t seed = first_seed; seed < first_seed + 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Crowd crowd(seed);
    for (int step = 0; step < 500; ++step) {
      crowd.Step();
      crowd.Check();
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(KvIsolationTest, ALookupVisitsOnlyItsOwnNamespacesNodes) {
  TestEngine engine(2100);
  const NamespaceId other = Open(engine, "b");
  for (uint32_t i = 0; i < 1000; ++i) {
    const Text text = MakeText(16 + i % 2 * 16, i * 50);
    const Sequence sequence = engine.Run(text);
  }
  const Text text = MakeText(32);
  EXPECT_EQ(engine.cache->Explain(other, text).nodes_visited, 1u);
  {
    Sequence sequence = engine.Admit(engine.cache->Lookup({.ns = other, .tokens = text}));
    ASSERT_TRUE(sequence.Append(text).ok());
    sequence.Commit(32);
  }
  EXPECT_EQ(engine.cache->Explain(other, text).nodes_visited, 2u);
  EXPECT_LE(engine.cache->Explain(engine.ns, text).nodes_visited, 4u);
}

// Nor does its content: texts of another are not told of but that they exist.
TEST(KvIsolationTest, AnExplanationNamesNoTokenOfAnotherNamespace) {
  TestEngine engine(40);
  const NamespaceId other = Open(engine, "b");
  const Text secret = MakeText(64, 100);
  { const Sequence sequence = engine.Run(secret); }
  for (size_t known = 1; known < 64; ++known) {
    Text guess = secret;
    guess.resize(known);
    guess.push_back(TokenId{1});
    for (const Miss& miss : engine.cache->Explain(other, guess).misses) {
      EXPECT_FALSE(miss.cached);
      EXPECT_FALSE(miss.differs_at);
      EXPECT_FALSE(miss.when_us);
    }
  }
}

TEST(KvIsolationTest, DroppingOneNamespaceLeavesTheOthers) {
  TestEngine engine(40);
  const NamespaceId other = Open(engine, "b"), first = engine.ns;
  const Text text = MakeText(40);
  { const Sequence sequence = engine.Run(text); }
  engine.ns = other;
  { const Sequence sequence = engine.Run(text); }
  EXPECT_EQ(engine.cache->DropCached(first), 3u);
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 32u);
  EXPECT_TRUE(engine.Holds(engine.Run(text), text, 40));
  engine.ns = first;
  EXPECT_EQ(engine.Lookup(text).num_ram_tokens(), 0u);
}

TEST(KvIsolationTest, SpecsThatDifferAnywhereAreOtherNamespaces) {
  TestEngine engine(10);
  std::vector<NamespaceSpec> specs(6);
  specs[1].numerics_version = 1;
  specs[2].fingerprint = {{.name = "a", .value = uint64_t{1}}};
  specs[3].fingerprint = {{.name = "a", .value = 1.0}};
  specs[4].adapter = "x";
  specs[5].tenant = "x";
  std::set<NamespaceId> ids;
  for (const NamespaceSpec& spec : specs) {
    ids.insert(*engine.cache->OpenNamespace(spec));
    EXPECT_EQ(*engine.cache->OpenNamespace(spec), *engine.cache->OpenNamespace(spec));
  }
  EXPECT_EQ(ids.size(), specs.size());
}

}  // namespace
}  // namespace kvern::kv
