// Every tier against the contract of kvern/kv_tier.h, and the memory tier's faults.
#include "kv/tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kv/tier/memory.h"

namespace kvern::kv {
namespace {

using Bytes = std::vector<std::byte>;

TierKey KeyOf(uint64_t number) {
  SplitMix64 random(number);
  TierKey key;
  for (std::byte& byte : key) byte = std::byte(random.Next());
  return key;
}

Bytes RecordOf(uint64_t number, size_t bytes) {
  SplitMix64 random(number + 1000);
  Bytes record(bytes);
  for (std::byte& byte : record) byte = std::byte(random.Next());
  return record;
}

// Gives every operation its own ticket, and buffers that live exactly as long as they must.
class Driver {
 public:
  struct Ended {
    bool is_load;
    bool is_cancelled;
    uint64_t key;
    Result<size_t> bytes;
    Bytes buffer;  // what was read or written
  };

  explicit Driver(Tier* tier) : tier_(tier) {}
  ~Driver() { Drain(); }

  TierTicket Store(uint64_t key, Bytes record) {
    Operation& operation = New(false, key);
    operation.buffer = std::move(record);
    tier_->StartStore(TierTicket(num_tickets_), KeyOf(key), operation.buffer);
    return TierTicket(num_tickets_);
  }

  TierTicket Load(uint64_t key, size_t buffer_bytes) {
    Operation& operation = New(true, key);
    operation.buffer.resize(buffer_bytes);
    tier_->StartLoad(TierTicket(num_tickets_), KeyOf(key), operation.buffer);
    return TierTicket(num_tickets_);
  }

  void Cancel(TierTicket ticket) {
    under_way_.at(ticket).is_cancelled = true;
    tier_->Cancel(ticket);
  }

  // What has completed since the last call. A ticket that is unknown or comes twice is a failure.
  std::map<TierTicket, Ended> Poll() {
    std::vector<TierCompletion> completions;
    tier_->Poll(completions);
    std::map<TierTicket, Ended> ended;
    for (TierCompletion& completion : completions) {
      const auto found = under_way_.find(completion.ticket);
      EXPECT_NE(found, under_way_.end());
      if (found == under_way_.end()) continue;
      Operation& operation = found->second;
      ended.emplace(completion.ticket, Ended{.is_load = operation.is_load,
                                             .is_cancelled = operation.is_cancelled,
                                             .key = operation.key,
                                             .bytes = std::move(completion.bytes),
                                             .buffer = std::move(operation.buffer)});
      under_way_.erase(found);
    }
    return ended;
  }

  // Everything that is under way; a tier that takes half a minute is broken.
  std::map<TierTicket, Ended> Drain() {
    using std::chrono::steady_clock;
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    std::map<TierTicket, Ended> ended = Poll();
    while (!under_way_.empty()) {
      CHECK(steady_clock::now() < limit);
      std::this_thread::yield();
      ended.merge(Poll());
    }
    return ended;
  }

  Result<size_t> StoreNow(uint64_t key, Bytes record) {
    const TierTicket ticket = Store(key, std::move(record));
    return Drain().at(ticket).bytes;
  }

  Result<Bytes> LoadNow(uint64_t key, size_t buffer_bytes) {
    const TierTicket ticket = Load(key, buffer_bytes);
    Ended ended = Drain().at(ticket);
    if (!ended.bytes.ok()) return ended.bytes.error();
    ended.buffer.resize(*ended.bytes);
    return ended.buffer;
  }

  bool Contains(uint64_t key) const { return tier_->Contains(KeyOf(key)); }
  bool IsUnderWay(TierTicket ticket) const { return under_way_.contains(ticket); }
  bool HasOperationOf(uint64_t key) const {
    return std::ranges::any_of(under_way_, [&](const auto& o) { return o.second.key == key; });
  }
  std::optional<TierTicket> AnyUnderWay(SplitMix64& random) const {
    if (under_way_.empty()) return std::nullopt;
    return std::next(under_way_.begin(), random.Below(under_way_.size()))->first;
  }

 private:
  struct Operation {
    bool is_load;
    bool is_cancelled = false;
    uint64_t key;
    Bytes buffer;
  };

  Operation& New(bool is_load, uint64_t key) {
    return under_way_[TierTicket(++num_tickets_)] = {
               .is_load = is_load, .is_cancelled = false, .key = key, .buffer = {}};
  }

  Tier* const tier_;
  uint64_t num_tickets_ = 0;
  std::map<TierTicket, Operation> under_way_;
};

class TierTest : public testing::TestWithParam<TierRow> {
 protected:
  TierTest() : tier_(GetParam().make({.capacity_bytes = 1 << 20}).value()), driver_(tier_.get()) {}

  std::unique_ptr<Tier> tier_;
  Driver driver_;
};

std::string RowName(const testing::TestParamInfo<TierRow>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Table, TierTest, testing::ValuesIn(Tiers().begin(), Tiers().end()),
                         RowName);

TEST_P(TierTest, LoadsWhatWasStored) {
  for (const size_t bytes : {1, 63, 4096, 100001}) {
    EXPECT_FALSE(driver_.Contains(bytes));
    EXPECT_EQ(driver_.StoreNow(bytes, RecordOf(bytes, bytes)).value(), bytes);
    EXPECT_TRUE(driver_.Contains(bytes));
  }
  for (const size_t bytes : {1, 63, 4096, 100001}) {
    EXPECT_EQ(driver_.LoadNow(bytes, bytes).value(), RecordOf(bytes, bytes));
    EXPECT_EQ(driver_.LoadNow(bytes, bytes + 100).value(), RecordOf(bytes, bytes));
  }
}

TEST_P(TierTest, ContainsNothingBeforeTheStoreHasCompleted) {
  const TierTicket ticket = driver_.Store(1, RecordOf(1, 1000));
  while (driver_.IsUnderWay(ticket)) {
    EXPECT_FALSE(driver_.Contains(1));
    driver_.Poll();
  }
  EXPECT_TRUE(driver_.Contains(1));
}

TEST_P(TierTest, AFailedLoadIsNoMoreThanThat) {
  EXPECT_FALSE(driver_.LoadNow(7, 1000).ok());
  EXPECT_FALSE(driver_.Contains(7));
  ASSERT_TRUE(driver_.StoreNow(7, RecordOf(7, 1000)).ok());
  EXPECT_EQ(driver_.LoadNow(7, 1000).value(), RecordOf(7, 1000));
}

TEST_P(TierTest, ABufferThatIsTooSmallFails) {
  ASSERT_TRUE(driver_.StoreNow(1, RecordOf(1, 1000)).ok());
  EXPECT_FALSE(driver_.LoadNow(1, 999).ok());
  EXPECT_FALSE(driver_.LoadNow(1, 0).ok());
  EXPECT_EQ(driver_.LoadNow(1, 1000).value(), RecordOf(1, 1000));
}

TEST_P(TierTest, ForgetsWhatIsRemoved) {
  tier_->Remove(KeyOf(1));
  ASSERT_TRUE(driver_.StoreNow(1, RecordOf(1, 10)).ok());
  ASSERT_TRUE(driver_.StoreNow(2, RecordOf(2, 10)).ok());
  tier_->Remove(KeyOf(1));
  EXPECT_FALSE(driver_.Contains(1));
  EXPECT_FALSE(driver_.LoadNow(1, 10).ok());
  EXPECT_EQ(driver_.LoadNow(2, 10).value(), RecordOf(2, 10));
}

TEST_P(TierTest, TheLaterStoreReplacesTheEarlier) {
  ASSERT_TRUE(driver_.StoreNow(1, RecordOf(1, 500)).ok());
  ASSERT_TRUE(driver_.StoreNow(1, RecordOf(2, 30)).ok());
  EXPECT_EQ(driver_.LoadNow(1, 500).value(), RecordOf(2, 30));
}

TEST_P(TierTest, WhatIsCancelledCompletesOnceAllTheSame) {
  std::set<TierTicket> tickets;
  for (uint64_t key = 0; key < 20; ++key)
    ASSERT_TRUE(driver_.StoreNow(key, RecordOf(key, 99)).ok());
  for (uint64_t key = 0; key < 40; ++key) {
    const bool is_load = key < 20;
    const auto ticket = is_load ? driver_.Load(key, 99) : driver_.Store(key, RecordOf(key, 99));
    tickets.insert(ticket);
    driver_.Cancel(ticket);
    if (key % 2 == 0) driver_.Cancel(ticket);
    if (key % 7 == 0) {
      for (const auto& [ended, outcome] : driver_.Poll()) tickets.erase(ended);
    }
  }
  for (const auto& [ticket, ended] : driver_.Drain()) {
    tickets.erase(ticket);
    if (!ended.is_load) {
      EXPECT_EQ(driver_.Contains(ended.key), ended.bytes.ok());
    } else if (ended.bytes.ok()) {
      EXPECT_EQ(ended.buffer, RecordOf(ended.key, 99));
    }
  }
  EXPECT_TRUE(tickets.empty());
  tier_->Cancel(TierTicket(123456));
  EXPECT_TRUE(driver_.Poll().empty());
}

TEST_P(TierTest, TouchesABufferOnlyWhileTheLoadIsUnderWay) {
  ASSERT_TRUE(driver_.StoreNow(1, RecordOf(1, 100)).ok());
  Bytes around(300, std::byte{0xA5});
  tier_->StartLoad(TierTicket(1u << 30), KeyOf(1), std::span(around).subspan(100, 100));
  std::vector<TierCompletion> completions;
  while (completions.empty()) tier_->Poll(completions);
  Bytes expected(300, std::byte{0xA5});
  std::ranges::copy(RecordOf(1, 100), expected.begin() + 100);
  EXPECT_EQ(around, expected);

  std::ranges::fill(around, std::byte{0x3C});
  EXPECT_EQ(driver_.LoadNow(1, 100).value(), RecordOf(1, 100));
  EXPECT_EQ(around, Bytes(300, std::byte{0x3C}));
}

// Several operations on one key: which of them is first is the tier's affair, but never a mixture.
TEST_P(TierTest, OperationsOnOneKeyAtOnceGiveTheRecordOrAnError) {
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 3; ++i) {
      driver_.Store(1, RecordOf(1, 2000));
      driver_.Load(1, 2000);
      if (i == round % 3) tier_->Remove(KeyOf(1));
    }
    for (const auto& [ticket, ended] : driver_.Drain()) {
      if (ended.bytes.ok()) {
        EXPECT_EQ(ended.buffer, RecordOf(1, 2000));
      }
    }
  }
}

// One operation a key at a time, so that the model is a map.
class RandomOperations {
 public:
  RandomOperations(Tier* tier, uint64_t seed) : tier_(tier), driver_(tier), random_(seed) {}

  void Step() {
    const uint64_t key = random_.Below(12), dice = random_.Below(100);
    if (dice < 40) return Check(driver_.Poll());
    if (dice < 45) {
      if (const auto ticket = driver_.AnyUnderWay(random_)) driver_.Cancel(*ticket);
      return;
    }
    if (driver_.HasOperationOf(key)) return;
    if (dice < 65) {
      const Bytes record = RecordOf(random_.Below(1000), 1 + random_.Below(kMaxBytes));
      stored_[driver_.Store(key, record)] = record;
    } else if (dice < 95) {
      driver_.Load(key, random_.Below(8) == 0 ? random_.Below(kMaxBytes) : kMaxBytes);
    } else {
      tier_->Remove(KeyOf(key));
      model_.erase(key);
    }
  }

  void Finish() { Check(driver_.Drain()); }

 private:
  static constexpr size_t kMaxBytes = 200;

  void Check(const std::map<TierTicket, Driver::Ended>& all) {
    for (const auto& [ticket, ended] : all) {
      if (ended.is_load) {
        CheckLoad(ended);
      } else {
        ASSERT_TRUE(ended.bytes.ok() || ended.is_cancelled);
        if (ended.bytes.ok()) model_[ended.key] = stored_.at(ticket);
      }
    }
    for (uint64_t key = 0; key < 12; ++key) {
      if (driver_.HasOperationOf(key)) continue;
      ASSERT_EQ(driver_.Contains(key), model_.contains(key));
    }
  }

  void CheckLoad(const Driver::Ended& ended) {
    const auto held = model_.find(ended.key);
    const bool can_succeed = held != model_.end() && held->second.size() <= ended.buffer.size();
    ASSERT_TRUE(ended.is_cancelled || ended.bytes.ok() == can_succeed);
    if (!ended.bytes.ok()) return;
    ASSERT_TRUE(can_succeed);
    ASSERT_EQ(Bytes(ended.buffer.begin(), ended.buffer.begin() + *ended.bytes), held->second);
  }

  Tier* const tier_;
  Driver driver_;
  SplitMix64 random_;
  std::map<TierTicket, Bytes> stored_;
  std::map<uint64_t, Bytes> model_;  // by key
};

void RunRandomOperations(Tier* tier, uint64_t seed, int num_steps) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomOperations operations(tier, seed);
  for (int step = 0; step < num_steps && !testing::Test::HasFailure(); ++step) operations.Step();
  operations.Finish();
}

TEST_P(TierTest, HoldsWhatANaiveMapHolds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto tier = GetParam().make({.capacity_bytes = 1 << 20}).value();
    RunRandomOperations(tier.get(), seed, 1000);
    if (HasFailure()) return;
  }
}

TEST(TierTableTest, FindsRowsByName) {
  EXPECT_EQ(FindTier("memory").value()->name, "memory");
  EXPECT_EQ(FindTier("tape").error().message, "unknown tier 'tape': use one of memory");
}

TEST(MemoryTierTest, KeepsTheContractWhenSlowAndOutOfOrder) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    MemoryTier tier({.min_latency_polls = 1 + static_cast<uint32_t>(seed % 3),
                     .max_latency_polls = 9,
                     .reorder = seed % 2 == 0,
                     .seed = seed});
    RunRandomOperations(&tier, seed, 1000);
    if (HasFailure()) return;
  }
}

TEST(MemoryTierTest, OfNoCapacityIsRefused) {
  EXPECT_EQ(MakeMemoryTier({}).error().code, ErrorCode::kInvalidArgument);
}

TEST(MemoryTierTest, ForgetsTheLeastRecentlyUsed) {
  MemoryTier tier({.capacity_bytes = 1000});
  Driver driver(&tier);
  for (uint64_t key = 1; key <= 4; ++key)
    ASSERT_TRUE(driver.StoreNow(key, RecordOf(key, 250)).ok());
  ASSERT_TRUE(driver.LoadNow(1, 250).ok());
  ASSERT_TRUE(driver.StoreNow(5, RecordOf(5, 300)).ok());
  EXPECT_TRUE(driver.Contains(1));
  EXPECT_FALSE(driver.Contains(2));
  EXPECT_FALSE(driver.Contains(3));
  EXPECT_EQ(tier.bytes_held(), 800u);
  EXPECT_EQ(driver.StoreNow(1, RecordOf(1, 1001)).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(tier.num_records(), 3u);
}

TEST(MemoryTierTest, TakesAsLongAsItIsTold) {
  MemoryTier tier({.min_latency_polls = 3, .max_latency_polls = 3});
  Driver driver(&tier);
  driver.Store(1, RecordOf(1, 10));
  EXPECT_TRUE(driver.Poll().empty());
  EXPECT_TRUE(driver.Poll().empty());
  EXPECT_EQ(driver.Poll().size(), 1u);
}

std::vector<TierTicket> OrderOfLoads(const MemoryTierOptions& options) {
  MemoryTier tier(options);
  std::vector<Bytes> buffers(50, Bytes(8));
  for (size_t i = 0; i < buffers.size(); ++i) tier.StartLoad(TierTicket(i), KeyOf(i), buffers[i]);
  std::vector<TierCompletion> completions;
  while (tier.num_under_way() > 0) tier.Poll(completions);
  std::vector<TierTicket> order;
  for (const TierCompletion& completion : completions) order.push_back(completion.ticket);
  return order;
}

TEST(MemoryTierTest, ReordersBySeedAndOnlyIfTold) {
  const auto in_order = OrderOfLoads({.max_latency_polls = 5, .seed = 1});
  EXPECT_TRUE(std::ranges::is_sorted(in_order));
  const auto mixed = OrderOfLoads({.max_latency_polls = 5, .reorder = true, .seed = 1});
  EXPECT_FALSE(std::ranges::is_sorted(mixed));
  EXPECT_EQ(mixed, OrderOfLoads({.max_latency_polls = 5, .reorder = true, .seed = 1}));
  EXPECT_NE(mixed, OrderOfLoads({.max_latency_polls = 5, .reorder = true, .seed = 2}));
}

TEST(MemoryTierTest, CompletesNothingWhileStalled) {
  MemoryTier tier({});
  Driver driver(&tier);
  tier.Stall();
  const TierTicket load = driver.Load(1, 10);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(driver.Poll().empty());
  driver.Cancel(load);
  EXPECT_TRUE(driver.Poll().empty());
  tier.Resume();
  EXPECT_EQ(driver.Poll().size(), 1u);

  tier.Stall(/*num_polls=*/2);
  driver.Load(1, 10);
  EXPECT_TRUE(driver.Poll().empty());
  EXPECT_TRUE(driver.Poll().empty());
  EXPECT_EQ(driver.Poll().size(), 1u);
}

TEST(MemoryTierTest, EndsSomeOfWhatIsCancelledEarly) {
  MemoryTier tier({.min_latency_polls = 50, .max_latency_polls = 50, .reorder = true});
  Driver driver(&tier);
  for (uint64_t key = 0; key < 40; ++key) driver.Store(key, RecordOf(key, 10));
  driver.Drain();
  std::vector<TierTicket> loads;
  for (uint64_t key = 0; key < 40; ++key) loads.push_back(driver.Load(key, 10));
  for (const TierTicket load : loads) driver.Cancel(load);
  size_t num_ended = 0;
  for (int i = 0; i < 49; ++i) {
    for (const auto& [ticket, ended] : driver.Poll()) {
      EXPECT_FALSE(ended.bytes.ok());
      ++num_ended;
    }
  }
  EXPECT_GT(num_ended, 0u);
  EXPECT_LT(num_ended, 40u);
  for (const auto& [ticket, ended] : driver.Poll()) EXPECT_TRUE(ended.bytes.ok());
}

TEST(MemoryTierTest, FaultsOfLoads) {
  MemoryTier tier({.seed = 3});
  Driver driver(&tier);
  const auto load_with = [&](TierFault fault) {
    tier.FaultAt(tier.num_operations(), fault);
    return driver.LoadNow(1, 100);
  };
  const Bytes record = RecordOf(1, 100);
  ASSERT_TRUE(driver.StoreNow(1, record).ok());
  EXPECT_EQ(load_with(TierFault::kFail).error().code, ErrorCode::kIo);
  EXPECT_FALSE(load_with(TierFault::kOtherRecord).ok());  // there is none
  ASSERT_TRUE(driver.StoreNow(2, RecordOf(2, 90)).ok());
  EXPECT_EQ(load_with(TierFault::kOtherRecord).value(), RecordOf(2, 90));

  const Bytes damaged = load_with(TierFault::kDamage).value();
  ASSERT_EQ(damaged.size(), record.size());
  const auto differs = std::ranges::mismatch(damaged, record);
  ASSERT_NE(differs.in1, damaged.end());
  EXPECT_TRUE(std::equal(differs.in1 + 1, damaged.end(), differs.in2 + 1));

  const Bytes cut = load_with(TierFault::kTruncate).value();
  ASSERT_LT(cut.size(), record.size());
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), record.begin()));

  EXPECT_EQ(driver.LoadNow(1, 100).value(), record);  // the record itself is sound
  EXPECT_TRUE(driver.Contains(1));
  EXPECT_EQ(load_with(TierFault::kLose).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(driver.Contains(1));
}

TEST(MemoryTierTest, FaultsOfStores) {
  MemoryTier tier({.seed = 4});
  Driver driver(&tier);
  const auto store_with = [&](TierFault fault, uint64_t key) {
    tier.FaultAt(tier.num_operations(), fault);
    return driver.StoreNow(key, RecordOf(key, 100));
  };
  EXPECT_FALSE(store_with(TierFault::kFail, 1).ok());
  EXPECT_FALSE(driver.Contains(1));
  EXPECT_TRUE(store_with(TierFault::kLose, 2).ok());
  EXPECT_FALSE(driver.Contains(2));
  EXPECT_TRUE(store_with(TierFault::kDamage, 3).ok());
  EXPECT_NE(driver.LoadNow(3, 100).value(), RecordOf(3, 100));
  EXPECT_TRUE(store_with(TierFault::kTruncate, 4).ok());
  EXPECT_LT(driver.LoadNow(4, 100).value().size(), 100u);
  tier.Remove(KeyOf(4));
  const Bytes other = driver.LoadNow(3, 100).value();
  EXPECT_TRUE(store_with(TierFault::kOtherRecord, 5).ok());
  EXPECT_EQ(driver.LoadNow(5, 100).value(), other);
}

}  // namespace
}  // namespace kvern::kv
