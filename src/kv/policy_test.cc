// Every policy against the contract of policy.h, against a naive version of its own definition, and
// in the situations that it is for.
#include "kv/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kv/policy/ghost_keys.h"

namespace kvern::kv {
namespace {

// Texts that come, are used and go, as a prefix cache would report them: by chance, but in order.
class RandomTexts {
 public:
  enum class Change { kAdd, kRemove, kEvict };
  struct Step {
    Change change;
    EvictionCandidate candidate;  // all of it for kAdd, else the item alone
  };

  explicit RandomTexts(uint64_t seed) : random_(seed) {}

  // `victim` is what the policy names now. The cache fills and drains by turns.
  Step Next(std::optional<uint32_t> victim) {
    now_us_ += static_cast<int64_t>(random_.Below(3));
    const bool fills = num_steps_++ / 300 % 2 == 0;
    const uint64_t dice = random_.Below(100);
    if (victim && dice < (fills ? 10 : 40)) return Evict(*victim);
    if (victim && dice < 42 && random_.Below(20) == 0) return Evict(AnyCandidate());
    if (victim && dice >= 80) return Remove(AnyCandidate());
    if (!in_use_.empty() && dice >= 60) return Return();
    return AddNew();
  }

  const std::set<uint32_t>& candidates() const { return candidates_; }
  Step Evict(uint32_t item) {
    candidates_.erase(item);
    gone_.push_back(item);
    return {Change::kEvict, {.item = item}};
  }

 private:
  uint32_t AnyCandidate() {
    return *std::next(candidates_.begin(), random_.Below(candidates_.size()));
  }

  Step Remove(uint32_t item) {
    candidates_.erase(item);
    in_use_.push_back(item);
    return {Change::kRemove, {.item = item}};
  }

  Step Return() {
    std::swap(in_use_[random_.Below(in_use_.size())], in_use_.back());
    const uint32_t item = in_use_.back();
    in_use_.pop_back();
    if (random_.Below(20) == 0) return Add(NewText(item));
    EvictionCandidate& text = texts_[item];
    const bool is_recomputed = random_.Below(10) == 0;
    text.num_uses = static_cast<uint32_t>((is_recomputed ? 0 : text.num_uses) + random_.Below(4));
    text.bytes += random_.Below(2) * 16;
    return Add(text);
  }

  Step AddNew() {
    uint32_t item = static_cast<uint32_t>(texts_.size());
    if (!gone_.empty()) {
      item = gone_.back();
      gone_.pop_back();
    }
    return Add(NewText(item));
  }

  // Few keys, so that evicted ones come again; few values, so that there are ties.
  EvictionCandidate NewText(uint32_t item) {
    return {.item = item,
            .key = random_.Below(200) << 40,
            .bytes = random_.Below(5) * 64,
            .recompute_cost = static_cast<double>(random_.Below(4)) * 0.37,
            .num_uses = random_.Below(4) == 0 ? static_cast<uint32_t>(random_.Below(400)) : 0};
  }

  Step Add(EvictionCandidate text) {
    text.last_used_us = now_us_ - (random_.Below(4) == 0 ? random_.Below(50) : 0);
    texts_[text.item] = text;
    candidates_.insert(text.item);
    return {Change::kAdd, text};
  }

  SplitMix64 random_;
  int num_steps_ = 0;
  int64_t now_us_ = 1000;
  std::map<uint32_t, EvictionCandidate> texts_;
  std::set<uint32_t> candidates_;
  std::vector<uint32_t> in_use_, gone_;
};

void Apply(EvictionPolicy& policy, const RandomTexts::Step& step) {
  switch (step.change) {
    case RandomTexts::Change::kAdd:
      return policy.Add(step.candidate);
    case RandomTexts::Change::kRemove:
      return policy.Remove(step.candidate.item);
    case RandomTexts::Change::kEvict:
      return policy.Evict(step.candidate.item);
  }
}

class PolicyTest : public testing::TestWithParam<PolicyRow> {};

std::string RowName(const testing::TestParamInfo<PolicyRow>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Table, PolicyTest, testing::ValuesIn(Policies().begin(), Policies().end()),
                         RowName);

TEST_P(PolicyTest, NamesACandidateWhileThereIsOne) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto policy = GetParam().make();
    RandomTexts texts(seed);
    std::optional<uint32_t> victim = policy->Victim();
    ASSERT_FALSE(victim);
    for (int step = 0; step < 3000; ++step) {
      Apply(*policy, texts.Next(victim));
      victim = policy->Victim();
      ASSERT_EQ(victim.has_value(), !texts.candidates().empty()) << "step " << step;
      ASSERT_TRUE(!victim || texts.candidates().contains(*victim)) << "step " << step;
      ASSERT_EQ(policy->Victim(), victim) << "step " << step;
    }
    while (victim) {
      Apply(*policy, texts.Evict(*victim));
      victim = policy->Victim();
      ASSERT_EQ(victim.has_value(), !texts.candidates().empty());
      ASSERT_TRUE(!victim || texts.candidates().contains(*victim));
    }
  }
}

TEST_P(PolicyTest, TakesExtremes) {
  const auto policy = GetParam().make();
  constexpr auto kLongAgo = std::numeric_limits<int64_t>::min();
  constexpr double kHuge = std::numeric_limits<double>::max();
  for (uint32_t item = 0; item < 8; ++item) {
    policy->Add({.item = item * 1000,
                 .key = UINT64_MAX,
                 .bytes = item % 2 == 0 ? 0 : uint64_t{1} << 50,
                 .recompute_cost = item % 3 == 0 ? 0 : kHuge,
                 .num_uses = UINT32_MAX - item,
                 .last_used_us = kLongAgo + item % 4});
  }
  std::set<uint32_t> evicted;
  while (const auto victim = policy->Victim()) {
    policy->Evict(*victim);
    ASSERT_TRUE(evicted.insert(*victim).second);
  }
  EXPECT_EQ(evicted.size(), 8u);
}

TEST_P(PolicyTest, RefusesWhatIsOrIsNotACandidate) {
  const auto policy = GetParam().make();
  policy->Add({.item = 3});
  EXPECT_DEATH(policy->Add({.item = 3}), "CHECK failed");
  EXPECT_DEATH(policy->Remove(2), "CHECK failed");
  EXPECT_DEATH(policy->Evict(4), "CHECK failed");
  policy->Remove(3);
  EXPECT_DEATH(policy->Remove(3), "CHECK failed");
  EXPECT_DEATH(policy->Evict(3), "CHECK failed");
}

TEST(PolicyTableTest, FindsByName) {
  for (const PolicyRow& row : Policies()) {
    ASSERT_TRUE(FindPolicy(row.name).ok());
    EXPECT_EQ(FindPolicy(row.name).value(), &row);
    EXPECT_FALSE(row.help.empty());
  }
  const auto unknown = FindPolicy("fifo");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "unknown eviction policy 'fifo': use one of lru, lfu, s3fifo, cost");
}

// lru, lfu and cost by definition: the least (age + weight, last use, order of Add), searched.
class NaiveOrder : public EvictionPolicy {
 public:
  using Weight = std::function<double(const EvictionCandidate&)>;
  explicit NaiveOrder(Weight weight) : weight_(std::move(weight)) {}

  void Add(const EvictionCandidate& candidate) override {
    keys_[candidate.item] = {age_ + weight_(candidate), candidate.last_used_us, num_added_++};
  }
  void Remove(uint32_t item) override { CHECK(keys_.erase(item) == 1); }
  std::optional<uint32_t> Victim() override {
    if (keys_.empty()) return std::nullopt;
    const auto by_key = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::min_element(keys_.begin(), keys_.end(), by_key)->first;
  }
  void Evict(uint32_t item) override {
    if (item == *Victim()) age_ = std::get<0>(keys_[item]);
    Remove(item);
  }

 private:
  const Weight weight_;
  double age_ = 0;
  int num_added_ = 0;
  std::map<uint32_t, std::tuple<double, int64_t, int>> keys_;
};

// s3fifo by definition, with the oldest of each queue in front.
class NaiveS3Fifo : public EvictionPolicy {
 public:
  void Add(const EvictionCandidate& candidate) override {
    auto found = texts_.find(candidate.item);
    if (found != texts_.end() && found->second.now.key != candidate.key) {
      Leave(candidate.item);
      texts_.erase(found);
      found = texts_.end();
    }
    if (found == texts_.end()) {
      const auto ghost = std::find(ghosts_.begin(), ghosts_.end(), std::optional(candidate.key));
      found = texts_.emplace(candidate.item, Text{.is_main = ghost != ghosts_.end()}).first;
      if (ghost != ghosts_.end()) ghost->reset();
      max_texts_ = std::max(max_texts_, texts_.size());
    }
    Text& text = found->second;
    const bool is_recomputed = candidate.num_uses < text.now.num_uses;
    const uint32_t num_new = candidate.num_uses - (is_recomputed ? 0 : text.now.num_uses);
    for (uint32_t i = 0; i < num_new && text.credit < 3; ++i) ++text.credit;
    text.now = candidate;
    text.is_candidate = true;
    if (!HasPlace(candidate.item)) QueueOf(text).push_back(candidate.item);
  }

  void Remove(uint32_t item) override { texts_.at(item).is_candidate = false; }

  std::optional<uint32_t> Victim() override {
    while (NumCandidates(false) + NumCandidates(true) > 0) {
      const bool from_main =
          NumCandidates(false) == 0 ||
          (NumCandidates(true) > 0 && Bytes(false) < (Bytes(false) + Bytes(true)) / 10);
      const uint32_t item = (from_main ? main_ : small_).front();
      Text& text = texts_.at(item);
      if (text.is_candidate && text.credit == 0) return item;
      Leave(item);
      if (from_main && text.is_candidate) --text.credit;
      if (!from_main) text.is_main = true, text.credit = 0;
      if (text.is_candidate) main_.push_back(item);
    }
    return std::nullopt;
  }

  void Evict(uint32_t item) override {
    const Text text = texts_.at(item);
    const std::optional key = text.now.key;
    if (!text.is_main && std::find(ghosts_.begin(), ghosts_.end(), key) == ghosts_.end()) {
      while (ghosts_.size() >= max_texts_) ghosts_.pop_front();
      ghosts_.push_back(key);
    }
    Leave(item);
    texts_.erase(item);
  }

 private:
  struct Text {
    bool is_main = false;
    bool is_candidate = false;
    uint32_t credit = 0;
    EvictionCandidate now = {};
  };

  std::deque<uint32_t>& QueueOf(const Text& text) { return text.is_main ? main_ : small_; }
  bool HasPlace(uint32_t item) {
    const auto& queue = QueueOf(texts_.at(item));
    return std::find(queue.begin(), queue.end(), item) != queue.end();
  }
  void Leave(uint32_t item) { std::erase(QueueOf(texts_.at(item)), item); }
  size_t NumCandidates(bool is_main) const {
    return std::count_if(texts_.begin(), texts_.end(), [&](const auto& entry) {
      return entry.second.is_candidate && entry.second.is_main == is_main;
    });
  }
  uint64_t Bytes(bool is_main) const {
    uint64_t bytes = 0;
    for (const auto& [item, text] : texts_) {
      if (text.is_candidate && text.is_main == is_main) bytes += text.now.bytes;
    }
    return bytes;
  }

  std::deque<uint32_t> small_, main_;
  std::deque<std::optional<uint64_t>> ghosts_;  // empty: taken
  std::map<uint32_t, Text> texts_;
  size_t max_texts_ = 0;
};

double Odds(uint32_t num_uses) { return std::min<double>(num_uses, 255) + 1; }

std::unique_ptr<EvictionPolicy> MakeNaive(std::string_view name) {
  if (name == "s3fifo") return std::make_unique<NaiveS3Fifo>();
  if (name == "lru") {
    return std::make_unique<NaiveOrder>([](const EvictionCandidate&) { return 0.0; });
  }
  if (name == "lfu") {
    return std::make_unique<NaiveOrder>(
        [](const EvictionCandidate& c) { return Odds(c.num_uses); });
  }
  CHECK(name == "cost");
  return std::make_unique<NaiveOrder>([](const EvictionCandidate& c) {
    return c.recompute_cost * Odds(c.num_uses) / std::max<double>(static_cast<double>(c.bytes), 1);
  });
}

TEST_P(PolicyTest, IsItsDefinition) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto policy = GetParam().make();
    const auto naive = MakeNaive(GetParam().name);
    RandomTexts texts(seed);
    std::optional<uint32_t> victim;
    for (int step = 0; step < 2000; ++step) {
      const auto change = texts.Next(victim);
      Apply(*policy, change);
      Apply(*naive, change);
      victim = policy->Victim();
      ASSERT_EQ(victim, naive->Victim()) << "step " << step;
    }
    while (victim) {
      Apply(*policy, texts.Evict(*victim));
      naive->Evict(*victim);
      victim = policy->Victim();
      ASSERT_EQ(victim, naive->Victim());
    }
  }
}

TEST(GhostKeysTest, AreTheLastOnes) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    GhostKeys ghosts;
    std::deque<std::optional<uint64_t>> naive;
    size_t max_keys = 1;
    for (int step = 0; step < 5000; ++step) {
      max_keys += random.Below(40) == 0 ? 1 : 0;
      const uint64_t key = random.Below(300) << (seed % 2 * 50);
      const auto found = std::find(naive.begin(), naive.end(), std::optional(key));
      const bool is_known = found != naive.end();
      if (random.Below(3) == 0) {
        ASSERT_EQ(ghosts.Take(key), is_known) << "step " << step;
        if (is_known) found->reset();
      } else {
        ghosts.Insert(key, max_keys);
        if (is_known) continue;
        while (naive.size() >= max_keys) naive.pop_front();
        naive.emplace_back(key);
      }
    }
  }
}

// A cache of whole texts of one size and cost, all of them candidates between two accesses.
class ToyCache {
 public:
  ToyCache(const PolicyRow& row, uint32_t capacity) : policy_(row.make()) {
    for (uint32_t item = 0; item < capacity; ++item) free_.push_back(item);
  }

  // Whether it was there.
  bool Access(uint64_t key) {
    const auto found = texts_.find(key);
    const bool is_hit = found != texts_.end();
    if (is_hit) {
      policy_->Remove(found->second.item);
      ++found->second.num_uses;
    } else {
      if (free_.empty()) EvictOne();
      texts_[key] = {.item = free_.back(), .key = key, .bytes = 1024, .recompute_cost = 1};
      free_.pop_back();
    }
    texts_[key].last_used_us = ++now_us_;
    policy_->Add(texts_[key]);
    return is_hit;
  }

  int NumHits(uint64_t first_key, uint64_t num_keys) {
    int num_hits = 0;
    for (uint64_t key = first_key; key < first_key + num_keys; ++key) num_hits += Access(key);
    return num_hits;
  }

  bool Has(uint64_t key) const { return texts_.contains(key); }

 private:
  void EvictOne() {
    const uint32_t victim = *policy_->Victim();
    policy_->Evict(victim);
    std::erase_if(texts_, [&](const auto& entry) { return entry.second.item == victim; });
    free_.push_back(victim);
  }

  const std::unique_ptr<EvictionPolicy> policy_;
  int64_t now_us_ = 0;
  std::map<uint64_t, EvictionCandidate> texts_;
  std::vector<uint32_t> free_;
};

const PolicyRow& Row(std::string_view name) { return *FindPolicy(name).value(); }

int NumHotAfterScan(std::string_view policy) {
  constexpr uint64_t kNumHot = 50, kHotKey = 1, kScanKey = 1000;
  ToyCache cache(Row(policy), /*capacity=*/100);
  for (int round = 0; round < 12; ++round) cache.NumHits(kHotKey, kNumHot);
  EXPECT_EQ(cache.NumHits(kScanKey, 400), 0);
  return cache.NumHits(kHotKey, kNumHot);
}

TEST(PolicyScenarioTest, AScanFlushesOnlyLru) {
  EXPECT_EQ(NumHotAfterScan("lru"), 0);
  EXPECT_EQ(NumHotAfterScan("lfu"), 50);
  EXPECT_EQ(NumHotAfterScan("s3fifo"), 50);
  EXPECT_EQ(NumHotAfterScan("cost"), 50);
}

TEST(PolicyScenarioTest, S3FifoKeepsTheHotSetThroughAnEndlessScan) {
  ToyCache cache(Row("s3fifo"), 100);
  for (int round = 0; round < 2; ++round) cache.NumHits(1, 80);
  for (int round = 0; round < 100; ++round) cache.NumHits(1000 + 100 * round, 100);
  EXPECT_EQ(cache.NumHits(1, 80), 80);
}

TEST(PolicyScenarioTest, FameOfLfuWearsOffInABoundedTime) {
  constexpr uint64_t kFamous = 7, kNumCold = 9;
  ToyCache cache(Row("lfu"), kNumCold + 1);
  for (int use = 0; use < 100'000; ++use) cache.Access(kFamous);
  cache.NumHits(1000, kNumCold * 250);
  EXPECT_TRUE(cache.Has(kFamous));
  cache.NumHits(100'000, kNumCold * 10);
  EXPECT_FALSE(cache.Has(kFamous));
}

TEST(PolicyScenarioTest, S3FifoWelcomesWhatItJustEvicted) {
  ToyCache cache(Row("s3fifo"), 20);
  cache.NumHits(1, 25);
  EXPECT_FALSE(cache.Has(1));
  EXPECT_FALSE(cache.Access(1));  // remembered, so it joins the main queue
  cache.NumHits(1000, 100);
  EXPECT_TRUE(cache.Has(1));
}

TEST(PolicyScenarioTest, S3FifoKeepsThePlaceOfWhatIsInUse) {
  const auto policy = Row("s3fifo").make();
  policy->Add({.item = 0, .key = 10, .bytes = 1});
  policy->Add({.item = 1, .key = 11, .bytes = 1});
  policy->Remove(0);
  policy->Add({.item = 0, .key = 10, .bytes = 1});
  EXPECT_EQ(policy->Victim(), 0u);
  policy->Remove(0);
  EXPECT_EQ(policy->Victim(), 1u);  // its place came to the old end while it was in use
  policy->Add({.item = 0, .key = 10, .bytes = 1});
  policy->Add({.item = 2, .key = 12, .bytes = 1});
  policy->Evict(1);
  EXPECT_EQ(policy->Victim(), 2u);
}

TEST(PolicyScenarioTest, CostEvictsWhatIsBigAndCheapAndUnused) {
  const auto policy = Row("cost").make();
  policy->Add({.item = 0, .bytes = 4096, .recompute_cost = 8, .last_used_us = 1});
  policy->Add({.item = 1, .bytes = 4096, .recompute_cost = 2, .last_used_us = 4});
  policy->Add({.item = 2, .bytes = 65536, .recompute_cost = 8, .last_used_us = 3});
  policy->Add({.item = 3, .bytes = 4096, .recompute_cost = 8, .num_uses = 2, .last_used_us = 2});
  policy->Add({.item = 4, .bytes = 0, .recompute_cost = 8, .last_used_us = 0});
  for (const uint32_t expected : {2u, 1u, 0u, 3u, 4u}) {
    ASSERT_EQ(policy->Victim(), expected);
    policy->Evict(expected);
  }
}

TEST(PolicyScenarioTest, EvictingAnotherThanTheVictimAgesNothing) {
  const auto policy = Row("lfu").make();
  policy->Add({.item = 0, .num_uses = 3, .last_used_us = 1});
  policy->Add({.item = 1, .num_uses = 200, .last_used_us = 2});
  policy->Evict(1);
  policy->Add({.item = 2, .num_uses = 0, .last_used_us = 3});
  EXPECT_EQ(policy->Victim(), 2u);
}

}  // namespace
}  // namespace kvern::kv
