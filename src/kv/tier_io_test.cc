// TierIo over a memory tier at its worst, watched from between the two, and against a naive model.
#include "kv/tier_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "kv/tier/memory.h"

namespace kvern::kv {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kRecordBytes = 96;

TierKey KeyOf(uint64_t number) {
  TierKey key{};
  for (size_t i = 0; i < 8; ++i) key[i] = std::byte(number >> 8 * i & 0xFF);
  return key;
}

Bytes RecordOf(uint64_t key) {
  SplitMix64 random(key);
  Bytes record(1 + random.Below(kRecordBytes));
  for (std::byte& byte : record) byte = std::byte(random.Next());
  return record;
}

// Passes everything on to a MemoryTier, and fails the test when TierIo breaks its side of the
// contract: a ticket used twice, buffers of two operations that overlap, or a record that changes
// before it is stored.
class WatchedTier final : public Tier {
 public:
  explicit WatchedTier(const MemoryTierOptions& options) : memory(options) {}
  ~WatchedTier() override { EXPECT_TRUE(under_way_.empty()); }

  bool Contains(const TierKey& key) const override { return memory.Contains(key); }

  void StartLoad(TierTicket ticket, const TierKey& key, std::span<std::byte> into) override {
    loads.push_back(ticket);
    Begin(ticket, {.buffer = into, .stored = std::nullopt});
    memory.StartLoad(ticket, key, into);
  }

  void StartStore(TierTicket ticket, const TierKey& key,
                  std::span<const std::byte> record) override {
    Begin(ticket, {.buffer = record, .stored = Bytes(record.begin(), record.end())});
    memory.StartStore(ticket, key, record);
  }

  void Cancel(TierTicket ticket) override {
    EXPECT_TRUE(under_way_.contains(ticket));
    ++num_cancelled;
    memory.Cancel(ticket);
  }

  void Poll(std::vector<TierCompletion>& completions) override {
    const size_t num_before = completions.size();
    memory.Poll(completions);
    for (size_t i = num_before; i < completions.size(); ++i) {
      const Operation& operation = under_way_.at(completions[i].ticket);
      if (operation.stored) {
        EXPECT_TRUE(std::ranges::equal(*operation.stored, operation.buffer));
      }
      under_way_.erase(completions[i].ticket);
    }
    std::ranges::move(lies, std::back_inserter(completions));
    lies.clear();
  }

  void Remove(const TierKey& key) override { memory.Remove(key); }

  MemoryTier memory;
  std::vector<TierTicket> loads;     // in the order of their starts
  std::vector<TierCompletion> lies;  // told with the next Poll()
  size_t max_under_way = 0;
  size_t num_cancelled = 0;

 private:
  struct Operation {
    std::span<const std::byte> buffer;
    std::optional<Bytes> stored;
  };

  void Begin(TierTicket ticket, Operation operation) {
    EXPECT_TRUE(tickets_.insert(ticket).second);
    for (const auto& [other_ticket, other] : under_way_) {
      const std::byte* const begin = operation.buffer.data();
      EXPECT_TRUE(begin + operation.buffer.size() <= other.buffer.data() ||
                  other.buffer.data() + other.buffer.size() <= begin);
    }
    under_way_.emplace(ticket, std::move(operation));
    max_under_way = std::max(max_under_way, under_way_.size());
  }

  std::set<TierTicket> tickets_;
  std::map<TierTicket, Operation> under_way_;
};

// Holds the records of the keys [0, num_records), and has forgotten how they were stored.
std::unique_ptr<WatchedTier> TierWith(uint64_t num_records, const MemoryTierOptions& options) {
  auto tier = std::make_unique<WatchedTier>(options);
  for (uint64_t key = 0; key < num_records; ++key) {
    const Bytes record = RecordOf(key);
    tier->memory.StartStore(TierTicket(key), KeyOf(key), record);
    std::vector<TierCompletion> completions;
    while (completions.empty()) tier->memory.Poll(completions);
  }
  return tier;
}

std::unique_ptr<TierIo> MakeIo(Tier* tier, size_t max_operations) {
  return TierIo::Create(tier, max_operations, kRecordBytes).value();
}

bool TryStore(TierIo& io, uint64_t key) {
  const Bytes record = RecordOf(key);
  return io.TryStore(KeyOf(key), record.size(), [&](std::span<std::byte> to) {
    ASSERT_EQ(to.size(), record.size());
    std::ranges::copy(record, to.begin());
  });
}

// Polls until the load has ended.
Result<Bytes> Await(TierIo& io, LoadId load) {
  while (!io.Loaded(load)) io.Poll();
  const auto record = *io.Loaded(load);
  if (!record.ok()) return record.error();
  return Bytes(record->begin(), record->end());
}

TEST(TierIoTest, StoresAndLoads) {
  WatchedTier tier({});
  const auto io = MakeIo(&tier, 4);
  ASSERT_TRUE(TryStore(*io, 1));
  EXPECT_FALSE(tier.Contains(KeyOf(1)));
  EXPECT_TRUE(io->Poll().empty());
  EXPECT_TRUE(tier.Contains(KeyOf(1)));

  const LoadId load = io->StartLoad(KeyOf(1));
  EXPECT_FALSE(io->Loaded(load));
  const auto ended = io->Poll();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0], load);
  EXPECT_TRUE(std::ranges::equal(io->Loaded(load)->value(), RecordOf(1)));
  EXPECT_EQ(io->num_under_way(), 0u);
  io->Finish(load);
  io->CheckInvariants();
  EXPECT_EQ(io->stats().bytes_loaded, RecordOf(1).size());
  EXPECT_EQ(io->stats().bytes_stored, RecordOf(1).size());
}

TEST(TierIoTest, BuffersThatDoNotFitIntoMemoryAreAnError) {
  MemoryTier tier({});
  EXPECT_EQ(TierIo::Create(&tier, 2, size_t{1} << 62).error().code, ErrorCode::kOutOfMemory);
}

TEST(TierIoTest, LoadsMoreThanItHasBuffersFor) {
  const auto tier = TierWith(2000, {.max_latency_polls = 4, .reorder = true, .seed = 7});
  const auto io = MakeIo(tier.get(), 64);
  std::map<LoadId, uint64_t> keys;
  for (uint64_t key = 0; key < 2000; ++key) keys[io->StartLoad(KeyOf(key))] = key;
  EXPECT_EQ(io->num_under_way(), 64u);
  EXPECT_EQ(io->num_queued(), 2000u - 64);
  while (!keys.empty()) {
    for (const LoadId load : io->Poll()) {
      EXPECT_TRUE(std::ranges::equal(io->Loaded(load)->value(), RecordOf(keys.at(load))));
      io->Finish(load);
      keys.erase(load);
    }
    io->CheckInvariants();
  }
  EXPECT_EQ(tier->max_under_way, 64u);
  EXPECT_TRUE(std::ranges::is_sorted(tier->loads));  // first come, first served
  EXPECT_EQ(io->stats().loads_done, 2000u);
}

TEST(TierIoTest, ALoadThatIsGivenUpKeepsItsBufferUntilItsCompletion) {
  for (uint64_t seed = 0; seed < 8; ++seed) {  // cancelled in time or not
    const auto tier = TierWith(2, {.seed = seed});
    const auto io = MakeIo(tier.get(), 1);
    tier->memory.Stall();
    io->Finish(io->StartLoad(KeyOf(0)));
    EXPECT_EQ(io->num_under_way(), 1u);
    EXPECT_FALSE(TryStore(*io, 5));
    const LoadId load = io->StartLoad(KeyOf(1));
    for (int i = 0; i < 10; ++i) io->Poll();
    EXPECT_EQ(tier->loads.size(), 1u);
    io->CheckInvariants();

    tier->memory.Resume();
    EXPECT_TRUE(io->Poll().empty());  // nobody is told of what he gave up
    EXPECT_EQ(tier->loads.size(), 2u);
    EXPECT_EQ(Await(*io, load).value(), RecordOf(1));
    io->Finish(load);
    io->CheckInvariants();
    EXPECT_EQ(io->stats().loads_cancelled, 1u);
    EXPECT_EQ(io->stats().stores_skipped, 1u);
  }
}

TEST(TierIoTest, AQueuedLoadThatIsGivenUpNeverReachesTheTier) {
  const auto tier = TierWith(3, {});
  const auto io = MakeIo(tier.get(), 1);
  const LoadId first = io->StartLoad(KeyOf(0)), second = io->StartLoad(KeyOf(1)),
               third = io->StartLoad(KeyOf(2));
  io->Finish(second);
  EXPECT_EQ(io->num_queued(), 1u);
  EXPECT_EQ(Await(*io, first).value(), RecordOf(0));
  EXPECT_EQ(io->num_queued(), 1u);  // what is loaded holds its buffer
  io->Finish(first);
  EXPECT_EQ(Await(*io, third).value(), RecordOf(2));
  EXPECT_EQ(tier->loads.size(), 2u);
  io->Finish(third);
}

TEST(TierIoTest, AFailedLoadSaysWhyAndHoldsNoBuffer) {
  const auto tier = TierWith(1, {});
  const auto io = MakeIo(tier.get(), 1);
  const LoadId absent = io->StartLoad(KeyOf(77)), present = io->StartLoad(KeyOf(0));
  EXPECT_EQ(Await(*io, absent).error().message, "the tier has no such record");
  EXPECT_EQ(Await(*io, present).value(), RecordOf(0));
  EXPECT_FALSE(io->Loaded(absent)->ok());
  io->Finish(absent);
  io->Finish(present);
  io->CheckInvariants();
  EXPECT_EQ(io->stats().loads_failed, 1u);
}

TEST(TierIoTest, ARecordLongerThanABufferFails) {
  WatchedTier tier({});
  const auto io = TierIo::Create(&tier, 1, kRecordBytes).value();
  const Bytes record(kRecordBytes + 1);
  tier.memory.StartStore(TierTicket(0), KeyOf(1), record);
  std::vector<TierCompletion> completions;
  tier.memory.Poll(completions);
  const LoadId load = io->StartLoad(KeyOf(1));
  EXPECT_FALSE(Await(*io, load).ok());
  io->Finish(load);
}

TEST(TierIoTest, FailedStoresAreCounted) {
  WatchedTier tier({});
  const auto io = MakeIo(&tier, 2);
  tier.memory.FaultAt(0, TierFault::kFail);
  EXPECT_TRUE(TryStore(*io, 1));
  EXPECT_TRUE(TryStore(*io, 2));
  bool is_filled = false;
  EXPECT_FALSE(io->TryStore(KeyOf(3), 10, [&](std::span<std::byte>) { is_filled = true; }));
  EXPECT_FALSE(is_filled);
  io->Poll();
  EXPECT_FALSE(tier.Contains(KeyOf(1)));
  EXPECT_TRUE(tier.Contains(KeyOf(2)));
  EXPECT_EQ(io->stats().stores_started, 2u);
  EXPECT_EQ(io->stats().stores_done, 1u);
  EXPECT_EQ(io->stats().stores_failed, 1u);
  EXPECT_EQ(io->stats().stores_skipped, 1u);
  EXPECT_TRUE(TryStore(*io, 3));
}

TEST(TierIoTest, QueuedLoadsGoBeforeStores) {
  const auto tier = TierWith(2, {});
  const auto io = MakeIo(tier.get(), 1);
  const LoadId first = io->StartLoad(KeyOf(0)), second = io->StartLoad(KeyOf(1));
  io->Poll();
  io->Finish(first);
  EXPECT_FALSE(TryStore(*io, 5));
  EXPECT_EQ(Await(*io, second).value(), RecordOf(1));
  io->Finish(second);
  EXPECT_TRUE(TryStore(*io, 5));
}

TEST(TierIoTest, TheDestructorWaitsForTheTier) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto tier = TierWith(20, {.max_latency_polls = 30, .reorder = true, .seed = seed});
    auto io = MakeIo(tier.get(), 8);
    for (uint64_t key = 0; key < 3; ++key) EXPECT_TRUE(TryStore(*io, 100 + key));
    const LoadId loaded = io->StartLoad(KeyOf(0));
    while (!io->Loaded(loaded)) io->Poll();
    io->Finish(io->StartLoad(KeyOf(1)));
    for (uint64_t key = 2; key < 20; ++key) io->StartLoad(KeyOf(key));
    const size_t num_loads = tier->loads.size(), num_under_way = io->num_under_way();
    tier->num_cancelled = 0;
    tier->memory.Stall(/*num_polls=*/10);
    io.reset();
    EXPECT_EQ(tier->num_cancelled, num_under_way);
    EXPECT_EQ(tier->memory.num_under_way(), 0u);
    EXPECT_EQ(tier->loads.size(), num_loads);  // the queue was dropped
  }
}

TEST(TierIoTest, IgnoresWhatABrokenTierSays) {
  const auto tier = TierWith(2, {});
  const auto io = MakeIo(tier.get(), 2);
  const LoadId load = io->StartLoad(KeyOf(0));
  tier->lies = {{TierTicket(0), size_t{5}},
                {TierTicket(~uint64_t{0}), size_t{5}},
                {tier->loads[0], size_t{5}},  // once more
                {tier->loads[0], Error{ErrorCode::kIo, "or not"}}};
  EXPECT_EQ(io->Poll().size(), 1u);
  EXPECT_EQ(io->stats().stray_completions, 4u);
  EXPECT_EQ(Await(*io, load).value(), RecordOf(0));
  tier->lies = {{tier->loads[0], size_t{1}}};
  EXPECT_TRUE(io->Poll().empty());
  EXPECT_EQ(Await(*io, load).value(), RecordOf(0));
  io->Finish(load);
  tier->lies = {{tier->loads[0], size_t{1}}};
  EXPECT_TRUE(io->Poll().empty());
  EXPECT_EQ(io->stats().stray_completions, 6u);
  io->CheckInvariants();
}

// Says that it has read more than there is room for, without having read anything.
class BoastfulTier final : public Tier {
 public:
  bool Contains(const TierKey&) const override { return true; }
  void StartLoad(TierTicket ticket, const TierKey&, std::span<std::byte> into) override {
    const TierCompletion completion{.ticket = ticket, .bytes = into.size() + 1};
    completions_.push_back(completion);
  }
  void StartStore(TierTicket, const TierKey&, std::span<const std::byte>) override {}
  void Cancel(TierTicket) override {}
  void Poll(std::vector<TierCompletion>& completions) override { completions.swap(completions_); }
  void Remove(const TierKey&) override {}

 private:
  std::vector<TierCompletion> completions_;
};

TEST(TierIoTest, ALengthBeyondTheBufferIsAFailure) {
  BoastfulTier tier;
  const auto io = MakeIo(&tier, 1);
  const LoadId load = io->StartLoad(KeyOf(0));
  EXPECT_EQ(Await(*io, load).error().message,
            "the tier says it read 97 bytes into a buffer of 96: the tier is at fault");
  io->Finish(load);
}

// Random operations; the model is a list of loads that nobody has finished. Every outcome is
// checked, and that all that was started ends.
class RandomOperations {
 public:
  RandomOperations(uint64_t seed, size_t max_operations)
      : random_(seed),
        tier_({.capacity_bytes = random_.Below(4) == 0 ? 500u : 100000u,
               .max_latency_polls = 1 + static_cast<uint32_t>(random_.Below(8)),
               .reorder = random_.Below(2) == 0,
               .seed = seed}),
        io_(MakeIo(&tier_, max_operations)) {}

  void Step() {
    const uint64_t dice = random_.Below(100);
    if (dice < 30) {
      const uint64_t key = random_.Below(kNumKeys);
      const LoadId load = io_->StartLoad(KeyOf(key));
      ASSERT_TRUE(loads_.emplace(load, key).second);
    } else if (dice < 50) {
      const bool has_room = num_buffers_used() < io_->max_operations();
      ASSERT_EQ(TryStore(*io_, random_.Below(kNumKeys)), has_room);
    } else if (dice < 80) {
      Poll();
    } else if (dice < 90) {
      if (!loads_.empty()) Finish(std::next(loads_.begin(), random_.Below(loads_.size()))->first);
    } else if (dice < 96) {
      tier_.memory.FaultAt(tier_.memory.num_operations() + random_.Below(3),
                           random_.Below(2) == 0 ? TierFault::kFail : TierFault::kLose);
    } else {
      tier_.memory.Stall(random_.Below(6));
    }
    Check();
  }

  // Takes what is loaded until all loads have ended.
  void Drain() {
    for (int i = 0; i < 10000 && !loads_.empty() && !testing::Test::HasFailure(); ++i) {
      Poll();
      while (!ended_.empty()) Finish(*ended_.begin());
      Check();
    }
    ASSERT_TRUE(loads_.empty());
    ASSERT_TRUE(std::ranges::is_sorted(tier_.loads));
    ASSERT_LE(tier_.max_under_way, io_->max_operations());
    ASSERT_EQ(io_->stats().stray_completions, 0u);
  }

 private:
  static constexpr uint64_t kNumKeys = 25;

  void Poll() {
    for (const LoadId load : io_->Poll()) {
      ASSERT_TRUE(loads_.contains(load));
      ASSERT_TRUE(ended_.insert(load).second);
    }
  }

  void Finish(LoadId load) {
    io_->Finish(load);
    loads_.erase(load);
    ended_.erase(load);
  }

  size_t num_buffers_used() const {
    size_t num_loaded = 0;
    for (const LoadId load : ended_) num_loaded += io_->Loaded(load)->ok() ? 1 : 0;
    return num_loaded + tier_.memory.num_under_way();
  }

  void Check() {
    io_->CheckInvariants();
    ASSERT_EQ(io_->num_under_way(), tier_.memory.num_under_way());
    ASSERT_LE(num_buffers_used(), io_->max_operations());
    for (const auto& [load, key] : loads_) {
      const auto record = io_->Loaded(load);
      ASSERT_EQ(record.has_value(), ended_.contains(load));
      if (record && record->ok()) {
        ASSERT_TRUE(std::ranges::equal(**record, RecordOf(key)));
      }
    }
  }

  SplitMix64 random_;
  WatchedTier tier_;
  std::unique_ptr<TierIo> io_;
  std::map<LoadId, uint64_t> loads_;  // that were not finished, and their keys
  std::set<LoadId> ended_;            // of those
};

TEST(TierIoTest, RandomOperationsAgreeWithANaiveModel) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomOperations operations(seed, 1 + seed % 7);
    for (int step = 0; step < 600 && !HasFailure(); ++step) operations.Step();
    if (seed % 3 != 0) operations.Drain();  // else the destructor has it all
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kvern::kv
