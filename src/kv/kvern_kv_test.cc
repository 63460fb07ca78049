// The C API where it is more than kvern/kv.h: statuses, sizes of structs, callbacks, handles that
// have ended. kvern_kv_c_test.c uses it as an engine would.
#include "kvern/kvern_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvern/kv.h"

namespace kvern::kv {
namespace {

using ::testing::HasSubstr;

constexpr size_t kTestBlockBytes = 128;

static_assert(KVERN_KV_NEVER_SEEN == static_cast<int>(MissReason::kNeverSeen));
static_assert(KVERN_KV_EVICTED == static_cast<int>(MissReason::kEvicted));
static_assert(KVERN_KV_UNKNOWN == static_cast<int>(MissReason::kUnknown));
static_assert(KVERN_KV_OTHER_TOKEN == static_cast<int>(MissReason::kOtherToken));
static_assert(KVERN_KV_OTHER_NAMESPACE == static_cast<int>(MissReason::kOtherNamespace));
static_assert(KVERN_KV_LOGITS_NEEDED == static_cast<int>(MissReason::kLogitsNeeded));
static_assert(KVERN_KV_GROUP_NOT_HELD == static_cast<int>(MissReason::kGroupNotHeld));
static_assert(KVERN_KV_TIER_FAILED == static_cast<int>(MissReason::kTierFailed));
static_assert(KVERN_KV_POLICY_OFF == static_cast<int>(MissReason::kPolicyOff));
static_assert(KVERN_KV_READY == static_cast<int>(Event::Kind::kReady));
static_assert(KVERN_KV_TAKE_OVER == static_cast<int>(Event::Kind::kTakeOver));
static_assert(KVERN_KV_LOAD_PENDING == static_cast<int>(LoadState::kPending));
static_assert(KVERN_KV_LOADED == static_cast<int>(LoadState::kLoaded));
static_assert(KVERN_KV_LOAD_FAILED == static_cast<int>(LoadState::kFailed));
static_assert(KVERN_KV_FULL == static_cast<int>(GroupKind::kFull));
static_assert(KVERN_KV_WINDOW == static_cast<int>(GroupKind::kWindow));
static_assert(KVERN_KV_STATE == static_cast<int>(GroupKind::kState));

// A struct of the C API, zeroed but for its size.
template <typename T>
T Sized() {
  T value = {};
  value.struct_size = sizeof(T);
  return value;
}

void CopyRows(void*, uint32_t, void* to, const void* from, uint32_t num_tokens) {
  std::memcpy(to, from, num_tokens * kTestBlockBytes / kBlockTokens);
}

// Options that are complete, to be changed by a test, and the cache made of them.
struct CCache {
  explicit CCache(size_t num_blocks = 16)
      : group(Sized<kvern_kv_group>()),
        store(Sized<kvern_kv_store>()),
        tier(Sized<kvern_kv_tier>()),
        options(Sized<kvern_kv_options>()) {
    group.block_bytes = kTestBlockBytes;
    store.copy_rows = CopyRows;
    options.groups = &group;
    options.num_groups = 1;
    options.budget_bytes = num_blocks * kTestBlockBytes;
    options.min_slab_bytes = kTestBlockBytes;
    options.store = &store;
  }
  ~CCache() { EXPECT_EQ(kvern_kv_cache_free(cache), KVERN_KV_OK) << kvern_kv_last_error(); }

  kvern_kv_status Make() { return kvern_kv_cache_new(&options, &cache); }

  // Makes it and opens a namespace.
  void Open() {
    ASSERT_EQ(Make(), KVERN_KV_OK) << kvern_kv_last_error();
    const auto spec = Sized<kvern_kv_namespace_spec>();
    ASSERT_EQ(kvern_kv_open_namespace(cache, &spec, &ns), KVERN_KV_OK) << kvern_kv_last_error();
  }

  kvern_kv_lease* Lookup(const std::vector<uint32_t>& tokens) {
    auto prompt = Sized<kvern_kv_prompt>();
    prompt.ns = ns;
    prompt.tokens = tokens.data();
    prompt.num_tokens = tokens.size();
    kvern_kv_lease* lease = nullptr;
    EXPECT_EQ(kvern_kv_lookup(cache, &prompt, &lease), KVERN_KV_OK) << kvern_kv_last_error();
    return lease;
  }

  kvern_kv_sequence* Admit(kvern_kv_lease* lease) {
    kvern_kv_sequence* sequence = nullptr;
    EXPECT_EQ(kvern_kv_admit(lease, nullptr, &sequence), KVERN_KV_OK) << kvern_kv_last_error();
    kvern_kv_lease_free(lease);
    return sequence;
  }

  kvern_kv_waiter* Wait(kvern_kv_lease* lease, int priority) {
    kvern_kv_waiter* waiter = nullptr;
    EXPECT_EQ(kvern_kv_wait(lease, priority, &waiter), KVERN_KV_OK) << kvern_kv_last_error();
    kvern_kv_lease_free(lease);
    return waiter;
  }

  void Run(const std::vector<uint32_t>& tokens) {
    kvern_kv_sequence* sequence = Admit(Lookup(tokens));
    auto info = Sized<kvern_kv_sequence_info>();
    EXPECT_EQ(kvern_kv_sequence_get(sequence, &info), KVERN_KV_OK);
    EXPECT_EQ(kvern_kv_append(sequence, tokens.data() + info.length, tokens.size() - info.length),
              KVERN_KV_OK);
    EXPECT_EQ(kvern_kv_commit(sequence, tokens.size()), KVERN_KV_OK);
    kvern_kv_sequence_free(sequence);
  }

  kvern_kv_group group;
  kvern_kv_store store;
  kvern_kv_tier tier;
  kvern_kv_options options;
  kvern_kv_cache* cache = nullptr;
  uint32_t ns = 0;
};

std::vector<uint32_t> Text(size_t num_tokens, uint32_t first = 0) {
  std::vector<uint32_t> text(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) text[i] = first + static_cast<uint32_t>(i);
  return text;
}

TEST(KvernKvTest, NamesAreThoseOfTheLibrary) {
  for (uint32_t i = 0; i < kNumMissReasons; ++i) {
    EXPECT_EQ(kvern_kv_miss_reason_name(i), ToString(MissReason(i)));
  }
  for (uint32_t i = 0; i < kNumEvictionCauses; ++i) {
    EXPECT_EQ(kvern_kv_eviction_cause_name(i), ToString(EvictionCause(i)));
  }
  for (uint32_t i = 0; i < kNumRecordRefusals; ++i) {
    EXPECT_EQ(kvern_kv_record_refusal_name(i), ToString(RecordRefusal(i)));
  }
  EXPECT_EQ(kvern_kv_miss_reason_name(kNumMissReasons), nullptr);
  EXPECT_EQ(kvern_kv_eviction_cause_name(kNumEvictionCauses), nullptr);
  EXPECT_EQ(kvern_kv_record_refusal_name(UINT32_MAX), nullptr);
}

TEST(KvernKvTest, NullIsAnErrorEverywhere) {
  CCache c;
  c.Open();
  const std::vector<uint32_t> text = Text(20);
  kvern_kv_lease* const lease = c.Lookup(text);
  kvern_kv_sequence* const sequence = c.Admit(c.Lookup(text));
  auto prompt = Sized<kvern_kv_prompt>();
  prompt.num_tokens = 1;
  kvern_kv_lease* no_lease = nullptr;
  kvern_kv_sequence* no_sequence = nullptr;
  kvern_kv_explanation* no_explanation = nullptr;
  kvern_kv_split split;
  size_t size;
  const std::map<std::string, kvern_kv_status> statuses = {
      {"cache_new", kvern_kv_cache_new(nullptr, &c.cache)},
      {"cache_new out", kvern_kv_cache_new(&c.options, nullptr)},
      {"set_time", kvern_kv_set_time(nullptr, 1)},
      {"open_namespace", kvern_kv_open_namespace(c.cache, nullptr, &c.ns)},
      {"lookup", kvern_kv_lookup(c.cache, &prompt, &no_lease)},
      {"lookup null", kvern_kv_lookup(c.cache, nullptr, &no_lease)},
      {"lookup out", kvern_kv_lookup(c.cache, &prompt, nullptr)},
      {"lease_get", kvern_kv_lease_get(lease, nullptr)},
      {"lease_get null", kvern_kv_lease_get(nullptr, nullptr)},
      {"lease_miss", kvern_kv_lease_miss(lease, 0, nullptr)},
      {"start_load", kvern_kv_start_load(nullptr)},
      {"poll", kvern_kv_poll(lease, nullptr)},
      {"install", kvern_kv_install(nullptr, &size)},
      {"poll_tier", kvern_kv_poll_tier(nullptr)},
      {"admit", kvern_kv_admit(nullptr, nullptr, &no_sequence)},
      {"admit out", kvern_kv_admit(lease, nullptr, nullptr)},
      {"wait", kvern_kv_wait(lease, 0, nullptr)},
      {"waiter_id", kvern_kv_waiter_id(nullptr, nullptr)},
      {"waiter_producer", kvern_kv_waiter_producer(nullptr, nullptr, nullptr)},
      {"retry", kvern_kv_retry(nullptr, &no_lease)},
      {"take_events", kvern_kv_take_events(c.cache, nullptr, 1, &size)},
      {"sequence_get", kvern_kv_sequence_get(sequence, nullptr)},
      {"reserve", kvern_kv_reserve(nullptr, 1)},
      {"append", kvern_kv_append(sequence, nullptr, 1)},
      {"commit", kvern_kv_commit(nullptr, 0)},
      {"truncate", kvern_kv_truncate(nullptr, 0)},
      {"fork", kvern_kv_fork(sequence, nullptr)},
      {"view", kvern_kv_view(sequence, 0, nullptr, &size)},
      {"keep_span", kvern_kv_keep_span(c.cache, 0, nullptr, 1, 1, nullptr)},
      {"drop_cached", kvern_kv_drop_cached(nullptr, nullptr, nullptr)},
      {"export", kvern_kv_export(c.cache, 0, text.data(), text.size(), nullptr)},
      {"import", kvern_kv_import(c.cache, 0, nullptr, 1, nullptr)},
      {"explain", kvern_kv_explain(c.cache, 0, nullptr, 1, &no_explanation)},
      {"explain nothing", kvern_kv_explain(c.cache, 0, text.data(), 0, &no_explanation)},
      {"explanation_get", kvern_kv_explanation_get(nullptr, &split, &size)},
      {"explanation_miss", kvern_kv_explanation_miss(nullptr, 0, nullptr)},
      {"get_stats", kvern_kv_get_stats(c.cache, nullptr)},
      {"get_usage", kvern_kv_get_usage(c.cache, 0, nullptr)},
      {"visit_tree", kvern_kv_visit_tree(c.cache, 0, nullptr, nullptr)},
      {"check_invariants", kvern_kv_check_invariants(nullptr)}};
  for (const auto& [call, status] : statuses) EXPECT_EQ(status, KVERN_KV_INVALID_ARGUMENT) << call;
  EXPECT_STREQ(kvern_kv_explanation_text(nullptr), "");
  kvern_kv_lease_free(nullptr);
  kvern_kv_waiter_free(nullptr);
  kvern_kv_sequence_free(nullptr);
  kvern_kv_explanation_free(nullptr);
  kvern_kv_bytes_free(nullptr);
  kvern_kv_lease_free(lease);
  kvern_kv_sequence_free(sequence);
}

TEST(KvernKvTest, NumbersOutOfRangeAreErrors) {
  CCache c;
  c.Open();
  const std::vector<uint32_t> text = Text(20);
  kvern_kv_sequence* const sequence = c.Admit(c.Lookup(text));
  void* const* blocks = nullptr;
  size_t size = 0;
  EXPECT_EQ(kvern_kv_view(sequence, 1, &blocks, &size), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_THAT(kvern_kv_last_error(), HasSubstr("kvern_kv_view: there is no group 1"));
  EXPECT_EQ(kvern_kv_commit(sequence, 1), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_truncate(sequence, 1), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_reserve(sequence, SIZE_MAX), KVERN_KV_OUT_OF_MEMORY);
  EXPECT_EQ(kvern_kv_reserve(sequence, 17 * kBlockTokens), KVERN_KV_OUT_OF_MEMORY);
  EXPECT_EQ(kvern_kv_drop_cached(c.cache, &text[5], nullptr), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_set_time(c.cache, -1), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_keep_span(c.cache, 0, text.data(), 20, 0, nullptr), KVERN_KV_INVALID_ARGUMENT);

  auto prompt = Sized<kvern_kv_prompt>();
  prompt.tokens = text.data();
  prompt.num_tokens = SIZE_MAX;
  kvern_kv_lease* lease = nullptr;
  EXPECT_EQ(kvern_kv_lookup(c.cache, &prompt, &lease), KVERN_KV_INVALID_ARGUMENT);
  prompt.num_tokens = 20;
  prompt.ns = 1;
  EXPECT_EQ(kvern_kv_lookup(c.cache, &prompt, &lease), KVERN_KV_INVALID_ARGUMENT);
  prompt.ns = 0;
  prompt.retention = 3;
  EXPECT_EQ(kvern_kv_lookup(c.cache, &prompt, &lease), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(lease, nullptr);
  kvern_kv_sequence_free(sequence);
}

TEST(KvernKvTest, WrongOptionsAreErrorsThatNameThem) {
  struct Case {
    std::string expected;
    std::function<void(CCache&)> change;
  };
  const std::vector<Case> cases = {
      {"groups", [](CCache& c) { c.options.num_groups = 0; }},
      {"groups", [](CCache& c) { c.options.groups = nullptr; }},
      {"groups[0]", [](CCache& c) { c.group.kind = 3; }},
      {"block_bytes", [](CCache& c) { c.group.block_bytes = 0; }},
      {"block_bytes", [](CCache& c) { c.group.block_bytes = SIZE_MAX - 63; }},
      {"block_tokens", [](CCache& c) { c.group.block_tokens = UINT32_MAX; }},
      {"smaller budget", [](CCache& c) { c.options.budget_bytes = SIZE_MAX; }},
      {"slab", [](CCache& c) { c.options.min_slab_bytes = SIZE_MAX; }},
      {"store", [](CCache& c) { c.options.store = nullptr; }},
      {"copy_rows", [](CCache& c) { c.store.copy_rows = nullptr; }},
      {"release",
       [](CCache& c) { c.store.allocate = [](void*, size_t, size_t*) { return (void*)nullptr; }; }},
      {"fifo9", [](CCache& c) { c.options.eviction = "fifo9"; }},
      {"disk", [](CCache& c) { c.options.tier_name = "disk"; }},
      {"capacity", [](CCache& c) { c.options.tier_name = "memory"; }},
      {"all are needed", [](CCache& c) { c.options.tier = &c.tier; }},
      {"history_blocks", [](CCache& c) { c.options.history_blocks = SIZE_MAX; }},
      {"tier_io_blocks", [](CCache& c) { c.options.tier_io_blocks = SIZE_MAX; }},
  };
  for (const Case& wrong : cases) {
    CCache c;
    wrong.change(c);
    EXPECT_EQ(c.Make(), KVERN_KV_INVALID_ARGUMENT) << wrong.expected;
    EXPECT_THAT(kvern_kv_last_error(), HasSubstr(wrong.expected));
    EXPECT_EQ(c.cache, nullptr);
  }
}

TEST(KvernKvTest, StructsSayTheirSize) {
  struct LaterOptions {
    kvern_kv_options options;
    uint64_t new_field;
  };
  CCache c;
  LaterOptions later = {.options = c.options, .new_field = 0};
  later.options.struct_size = sizeof(later);
  ASSERT_EQ(kvern_kv_cache_new(&later.options, &c.cache), KVERN_KV_OK);

  kvern_kv_cache* other = nullptr;
  later.new_field = 1;
  EXPECT_EQ(kvern_kv_cache_new(&later.options, &other), KVERN_KV_UNSUPPORTED);
  c.options.struct_size = 0;
  EXPECT_EQ(kvern_kv_cache_new(&c.options, &other), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_THAT(kvern_kv_last_error(), HasSubstr("struct_size"));

  struct LaterUsage {
    kvern_kv_usage usage;
    uint64_t new_field;
  };
  const auto spec = Sized<kvern_kv_namespace_spec>();
  ASSERT_EQ(kvern_kv_open_namespace(c.cache, &spec, &c.ns), KVERN_KV_OK);
  LaterUsage usage = {.usage = {}, .new_field = 77};
  usage.usage.struct_size = sizeof(usage);
  EXPECT_EQ(kvern_kv_get_usage(c.cache, c.ns, &usage.usage), KVERN_KV_OK);
  EXPECT_EQ(usage.usage.struct_size, sizeof(usage));
  EXPECT_EQ(usage.new_field, 77u);
}

// Counts what a store of callbacks is asked for.
struct CountedMemory {
  size_t bytes_held = 0;
  size_t misplaced_by = 0;
  bool refuses = false;
  size_t num_zeroed = 0;

  kvern_kv_store Store() {
    auto store = Sized<kvern_kv_store>();
    store.context = this;
    store.copy_rows = CopyRows;
    store.allocate = [](void* context, size_t bytes, size_t* region_bytes) -> void* {
      auto& self = *static_cast<CountedMemory*>(context);
      if (self.refuses) return nullptr;
      const size_t rounded = (bytes + 63) / 64 * 64;
      auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded + 64));
      std::memset(memory, 0, rounded + 64);
      self.bytes_held += rounded;
      *region_bytes = rounded;
      return memory + self.misplaced_by;
    };
    store.release = [](void* context, void* region, size_t region_bytes) {
      auto& self = *static_cast<CountedMemory*>(context);
      self.bytes_held -= region_bytes;
      std::free(static_cast<std::byte*>(region) - self.misplaced_by);
    };
    store.zero = [](void* context, void* to, size_t bytes) {
      ++static_cast<CountedMemory*>(context)->num_zeroed;
      std::memset(to, 0, bytes);
    };
    store.copy = [](void*, void* to, const void* from, size_t bytes) {
      std::memcpy(to, from, bytes);
    };
    return store;
  }
};

TEST(KvernKvTest, AStoreOfCallbacksHoldsTheBlocks) {
  CountedMemory memory;
  {
    CCache c(4);
    c.store = memory.Store();
    c.Open();
    c.Run(Text(60));
    EXPECT_EQ(memory.bytes_held, 4 * kTestBlockBytes);
    c.Run(Text(60, 100));
    EXPECT_GT(memory.num_zeroed, 0u);
    kvern_kv_bytes records = {};
    EXPECT_EQ(kvern_kv_export(c.cache, c.ns, Text(60, 100).data(), 60, &records), KVERN_KV_OK);
    EXPECT_GT(records.size, 3 * kTestBlockBytes);
    kvern_kv_bytes_free(&records);

    memory.refuses = true;
    EXPECT_EQ(kvern_kv_drop_cached(c.cache, nullptr, nullptr), KVERN_KV_OK);
  }
  EXPECT_EQ(memory.bytes_held, 0u);
}

TEST(KvernKvTest, AStoreThatRefusesOrMisplacesMemoryIsAnError) {
  CountedMemory memory;
  CCache c(4);
  c.store = memory.Store();
  c.Open();
  kvern_kv_sequence* const sequence = c.Admit(c.Lookup(Text(60)));
  memory.refuses = true;
  EXPECT_EQ(kvern_kv_reserve(sequence, 1), KVERN_KV_OUT_OF_MEMORY);
  memory.refuses = false;
  memory.misplaced_by = 8;
  EXPECT_EQ(kvern_kv_reserve(sequence, 1), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_THAT(kvern_kv_last_error(), HasSubstr("aligned"));
  EXPECT_EQ(memory.bytes_held, 0u);
  memory.misplaced_by = 0;
  EXPECT_EQ(kvern_kv_reserve(sequence, 1), KVERN_KV_OK);
  kvern_kv_sequence_free(sequence);
}

// A tier of callbacks that completes at the next poll.
struct MapTier {
  std::map<std::string, std::vector<std::byte>> records;
  std::vector<kvern_kv_tier_completion> completed;
  kvern_kv_status load_status = KVERN_KV_OK;

  static std::string Key(const uint8_t* key) { return {key, key + 32}; }
  static MapTier& Of(void* context) { return *static_cast<MapTier*>(context); }

  kvern_kv_tier Tier() {
    auto tier = Sized<kvern_kv_tier>();
    tier.context = this;
    tier.contains = [](void* context, const uint8_t* key) {
      return Of(context).records.contains(Key(key));
    };
    tier.start_load = [](void* context, uint64_t ticket, const uint8_t* key, void* into,
                         size_t bytes) {
      const auto& record = Of(context).records.at(Key(key));
      EXPECT_LE(record.size(), bytes);
      std::memcpy(into, record.data(), record.size());
      Of(context).completed.push_back({ticket, Of(context).load_status, record.size()});
    };
    tier.start_store = [](void* context, uint64_t ticket, const uint8_t* key, const void* record,
                          size_t bytes) {
      const auto* const from = static_cast<const std::byte*>(record);
      Of(context).records[Key(key)].assign(from, from + bytes);
      Of(context).completed.push_back({ticket, KVERN_KV_OK, bytes});
    };
    tier.cancel = [](void*, uint64_t) {};
    tier.poll = [](void* context, kvern_kv_tier_completion* completions, size_t capacity) {
      auto& completed = Of(context).completed;
      const size_t num_polled = std::min(capacity, completed.size());
      std::copy_n(completed.begin(), num_polled, completions);
      completed.erase(completed.begin(), completed.begin() + static_cast<ptrdiff_t>(num_polled));
      return num_polled;
    };
    tier.remove = [](void* context, const uint8_t* key) { Of(context).records.erase(Key(key)); };
    return tier;
  }
};

TEST(KvernKvTest, ATierOfCallbacksGivesBlocksBack) {
  MapTier tier;
  CCache c(128);
  c.tier = tier.Tier();
  c.options.tier = &c.tier;
  c.options.tier_io_blocks = 100;
  c.Open();
  const std::vector<uint32_t> text = Text(80 * kBlockTokens);
  c.Run(text);
  EXPECT_EQ(tier.records.size(), 80u);
  EXPECT_EQ(tier.completed.size(), 80u);
  EXPECT_EQ(kvern_kv_poll_tier(c.cache), KVERN_KV_OK);  // more than one call of poll
  EXPECT_TRUE(tier.completed.empty());
  EXPECT_EQ(kvern_kv_drop_cached(c.cache, nullptr, nullptr), KVERN_KV_OK);

  kvern_kv_lease* lease = c.Lookup(text);
  auto info = Sized<kvern_kv_lease_info>();
  EXPECT_EQ(kvern_kv_lease_get(lease, &info), KVERN_KV_OK);
  EXPECT_EQ(info.num_tier_tokens, text.size());
  EXPECT_EQ(kvern_kv_start_load(lease), KVERN_KV_OK);
  auto progress = Sized<kvern_kv_load_progress>();
  EXPECT_EQ(kvern_kv_poll(lease, &progress), KVERN_KV_OK);
  EXPECT_TRUE(progress.done);
  size_t gained = 0;
  EXPECT_EQ(kvern_kv_install(lease, &gained), KVERN_KV_OK);
  EXPECT_EQ(gained, text.size());
  kvern_kv_lease_free(lease);
}

TEST(KvernKvTest, ATierOfCallbacksMayFail) {
  MapTier tier;
  CCache c(8);
  c.tier = tier.Tier();
  c.options.tier = &c.tier;
  c.Open();
  c.Run(Text(32));
  EXPECT_EQ(kvern_kv_poll_tier(c.cache), KVERN_KV_OK);
  EXPECT_EQ(kvern_kv_drop_cached(c.cache, nullptr, nullptr), KVERN_KV_OK);
  tier.load_status = KVERN_KV_IO;
  kvern_kv_lease* lease = c.Lookup(Text(32));
  EXPECT_EQ(kvern_kv_start_load(lease), KVERN_KV_OK);
  auto progress = Sized<kvern_kv_load_progress>();
  EXPECT_EQ(kvern_kv_poll(lease, &progress), KVERN_KV_OK);
  ASSERT_EQ(progress.num_blocks, 2u);
  EXPECT_EQ(progress.blocks[0], KVERN_KV_LOAD_FAILED);
  EXPECT_THAT(progress.failure, HasSubstr("status 6"));
  size_t gained = 9;
  EXPECT_EQ(kvern_kv_install(lease, &gained), KVERN_KV_OK);
  EXPECT_EQ(gained, 0u);
  auto miss = Sized<kvern_kv_miss>();
  EXPECT_EQ(kvern_kv_lease_miss(lease, 0, &miss), KVERN_KV_OK);
  EXPECT_EQ(miss.reason, uint32_t{KVERN_KV_TIER_FAILED});
  EXPECT_THAT(miss.cause, HasSubstr("status 6"));
  kvern_kv_lease_free(lease);
}

TEST(KvernKvTest, EventsComeInPartsAndNotOfWaitersThatEnded) {
  CCache c;
  c.Open();
  const std::vector<uint32_t> text = Text(40);
  kvern_kv_sequence* const first = c.Admit(c.Lookup(text));
  kvern_kv_waiter* const low = c.Wait(c.Lookup(text), 1);
  kvern_kv_waiter* const high = c.Wait(c.Lookup(text), 3);
  kvern_kv_waiter* const middle = c.Wait(c.Lookup(text), 2);
  EXPECT_EQ(kvern_kv_append(first, text.data(), 40), KVERN_KV_OK);
  EXPECT_EQ(kvern_kv_commit(first, 40), KVERN_KV_OK);

  kvern_kv_event events[2];
  size_t num_events = 0;
  uint64_t id = 0;
  EXPECT_EQ(kvern_kv_take_events(c.cache, events, 1, &num_events), KVERN_KV_OK);
  EXPECT_EQ(kvern_kv_waiter_id(high, &id), KVERN_KV_OK);
  ASSERT_EQ(num_events, 1u);
  EXPECT_EQ(events[0].waiter, id);
  kvern_kv_waiter_free(middle);
  EXPECT_EQ(kvern_kv_waiter_id(low, &id), KVERN_KV_OK);
  EXPECT_EQ(kvern_kv_take_events(c.cache, events, 2, &num_events), KVERN_KV_OK);
  ASSERT_EQ(num_events, 1u);
  EXPECT_EQ(events[0].waiter, id);

  kvern_kv_lease* lease = nullptr;
  EXPECT_EQ(kvern_kv_retry(low, &lease), KVERN_KV_OK);
  kvern_kv_lease* again = nullptr;
  EXPECT_EQ(kvern_kv_retry(low, &again), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_waiter_id(low, &id), KVERN_KV_INVALID_ARGUMENT);
  kvern_kv_waiter_free(low);
  kvern_kv_waiter_free(high);
  kvern_kv_lease_free(lease);
  kvern_kv_sequence_free(first);
}

TEST(KvernKvTest, NoExceptionLeaves) {
  CCache c;
  c.Open();
  const auto visit = [](void*, const kvern_kv_tree_node*) { throw std::runtime_error("enough"); };
  EXPECT_EQ(kvern_kv_visit_tree(c.cache, c.ns, visit, nullptr), KVERN_KV_INTERNAL);
  EXPECT_STREQ(kvern_kv_last_error(), "kvern_kv_visit_tree: enough");
}

TEST(KvernKvTest, AdmissionThatFailsLeavesTheLease) {
  CCache c(2);
  c.Open();
  kvern_kv_lease* const lease = c.Lookup(Text(20));
  auto admit = Sized<kvern_kv_admit_options>();
  admit.reserve_tokens = 33;
  kvern_kv_sequence* sequence = nullptr;
  EXPECT_EQ(kvern_kv_admit(lease, &admit, &sequence), KVERN_KV_OUT_OF_MEMORY);
  EXPECT_EQ(sequence, nullptr);
  kvern_kv_waiter* waiter = nullptr;
  EXPECT_EQ(kvern_kv_wait(lease, 0, &waiter), KVERN_KV_INVALID_ARGUMENT);
  admit.reserve_tokens = 32;
  EXPECT_EQ(kvern_kv_admit(lease, &admit, &sequence), KVERN_KV_OK) << kvern_kv_last_error();
  EXPECT_EQ(kvern_kv_admit(lease, &admit, &sequence), KVERN_KV_INVALID_ARGUMENT);
  EXPECT_EQ(kvern_kv_cache_free(c.cache), KVERN_KV_INVALID_ARGUMENT);
  kvern_kv_sequence_free(sequence);
  kvern_kv_lease_free(lease);
}

}  // namespace
}  // namespace kvern::kv
