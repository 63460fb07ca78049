#include "kv/kvern_kv_convert.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kv/tier.h"

namespace kvern::kv {
namespace {

// What BlockPool counts in 32 bits, with room for the rounding to slabs.
constexpr size_t kMaxBlocks = size_t{1} << 30;
constexpr size_t kMaxBlockBytes = size_t{1} << 40;
constexpr uint32_t kMaxBlockTokens = 1 << 20;
constexpr size_t kMaxHistoryBlocks = size_t{1} << 30;
constexpr size_t kMaxTierIoBlocks = size_t{1} << 16;
constexpr size_t kSlabBytes = 4 << 20;
constexpr size_t kDefaultHistoryBlocks = 65536;
constexpr size_t kDefaultTierIoBlocks = 64;

std::string TextOr(const char* text, std::string_view fallback) {
  return text == nullptr ? std::string(fallback) : std::string(text);
}

ErrorCode CodeOf(kvern_kv_status status) {
  switch (status) {
    case KVERN_KV_INVALID_ARGUMENT:
      return ErrorCode::kInvalidArgument;
    case KVERN_KV_NOT_FOUND:
      return ErrorCode::kNotFound;
    case KVERN_KV_CORRUPT:
      return ErrorCode::kCorrupt;
    case KVERN_KV_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case KVERN_KV_OUT_OF_MEMORY:
      return ErrorCode::kOutOfMemory;
    default:
      return ErrorCode::kIo;
  }
}

class CallbackStore final : public BlockStore {
 public:
  explicit CallbackStore(const kvern_kv_store& calls) : calls_(calls) {}

  Result<Region> Allocate(size_t bytes) override {
    size_t region_bytes = 0;
    void* const memory = calls_.allocate(calls_.context, bytes, &region_bytes);
    if (memory == nullptr) {
      return Errorf(ErrorCode::kOutOfMemory,
                    "KV memory: the store refused {} bytes more, {} are held", bytes, bytes_held());
    }
    if (region_bytes < bytes || reinterpret_cast<uintptr_t>(memory) % kBlockAlignment != 0) {
      calls_.release(calls_.context, memory, region_bytes);
      return Errorf(ErrorCode::kInvalidArgument,
                    "kvern_kv_store::allocate: gave {} bytes at {} for {}: it must give as many or "
                    "more, aligned to {}",
                    region_bytes, memory, bytes, kBlockAlignment);
    }
    bytes_held_.fetch_add(region_bytes, std::memory_order_relaxed);
    return Region(static_cast<std::byte*>(memory), region_bytes);
  }

  void Free(Region region) override {
    calls_.release(calls_.context, region.data(), region.size());
    bytes_held_.fetch_sub(region.size(), std::memory_order_relaxed);
  }

  void Zero(std::byte* to, size_t bytes) override { calls_.zero(calls_.context, to, bytes); }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    calls_.copy(calls_.context, to, from, bytes);
  }

  void Read(std::span<std::byte> to, const std::byte* from) const override {
    if (calls_.read == nullptr) return BlockStore::Read(to, from);
    calls_.read(calls_.context, to.data(), from, to.size());
  }
  void Write(std::byte* to, std::span<const std::byte> from) override {
    if (calls_.write == nullptr) return BlockStore::Write(to, from);
    calls_.write(calls_.context, to, from.data(), from.size());
  }
  bool Equal(const std::byte* a, const std::byte* b, size_t bytes) const override {
    if (calls_.equal == nullptr) return BlockStore::Equal(a, b, bytes);
    return calls_.equal(calls_.context, a, b, bytes);
  }

  void CopyRows(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens) override {
    calls_.copy_rows(calls_.context, static_cast<uint32_t>(group), to, from, num_tokens);
  }

  size_t bytes_held() const override { return bytes_held_.load(std::memory_order_relaxed); }

 private:
  const kvern_kv_store calls_;
  std::atomic<size_t> bytes_held_{0};
};

Result<size_t> BytesOf(const kvern_kv_tier_completion& completion) {
  if (completion.status == KVERN_KV_OK) return completion.bytes;
  return Errorf(CodeOf(completion.status), "the tier completed it with status {}",
                completion.status);
}

class CallbackTier final : public Tier {
 public:
  explicit CallbackTier(const kvern_kv_tier& calls) : calls_(calls) {}

  bool Contains(const TierKey& key) const override {
    return calls_.contains(calls_.context, Bytes(key));
  }
  void StartLoad(TierTicket ticket, const TierKey& key, std::span<std::byte> into) override {
    calls_.start_load(calls_.context, Number(ticket), Bytes(key), into.data(), into.size());
  }
  void StartStore(TierTicket ticket, const TierKey& key,
                  std::span<const std::byte> record) override {
    calls_.start_store(calls_.context, Number(ticket), Bytes(key), record.data(), record.size());
  }
  void Cancel(TierTicket ticket) override { calls_.cancel(calls_.context, Number(ticket)); }

  void Poll(std::vector<TierCompletion>& completions) override {
    std::array<kvern_kv_tier_completion, 64> some = {};
    size_t num_polled;
    do {
      num_polled = calls_.poll(calls_.context, some.data(), some.size());
      for (const auto& one : std::span(some).first(std::min(num_polled, some.size()))) {
        completions.push_back({.ticket = TierTicket{one.ticket}, .bytes = BytesOf(one)});
      }
    } while (num_polled == some.size());
  }

  void Remove(const TierKey& key) override { calls_.remove(calls_.context, Bytes(key)); }

 private:
  static const uint8_t* Bytes(const TierKey& key) {
    return reinterpret_cast<const uint8_t*>(key.data());
  }
  static uint64_t Number(TierTicket ticket) { return static_cast<uint64_t>(ticket); }

  const kvern_kv_tier calls_;
};

Result<GroupSpec> ReadGroup(const kvern_kv_options& options, size_t index) {
  KVERN_ASSIGN_OR_RETURN(const kvern_kv_group group,
                         ReadElement(options.groups, index, "options: groups"));
  if (group.kind > KVERN_KV_STATE || group.block_bytes > kMaxBlockBytes ||
      group.block_tokens > kMaxBlockTokens) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "options: groups[{}]: kind {}, block_bytes {}, block_tokens {}: at most {}, {} "
                  "and {} are possible",
                  index, group.kind, group.block_bytes, group.block_tokens, int{KVERN_KV_STATE},
                  kMaxBlockBytes, kMaxBlockTokens);
  }
  return GroupSpec{.kind = static_cast<GroupKind>(group.kind),
                   .window = group.window,
                   .block_bytes = group.block_bytes,
                   .block_tokens = group.block_tokens == 0 ? kBlockTokens : group.block_tokens,
                   .row_independent = !group.whole_blocks_only,
                   .max_rollback = group.max_rollback};
}

Status CheckNumBlocks(const KvCacheOptions& options) {
  for (const GroupSpec& group : options.groups) {
    if (group.block_bytes == 0) continue;  // KvCache::Make() names it
    const size_t largest = std::max(options.budget_bytes, options.min_slab_bytes);
    if (largest / group.block_bytes <= kMaxBlocks) continue;
    return Errorf(ErrorCode::kInvalidArgument,
                  "options: {} bytes are more than {} blocks of {}: use a smaller budget and slab, "
                  "or larger blocks",
                  largest, kMaxBlocks, group.block_bytes);
  }
  return {};
}

Result<FingerprintField> ReadField(const kvern_kv_namespace_spec& spec, size_t index) {
  KVERN_ASSIGN_OR_RETURN(const kvern_kv_field field,
                         ReadElement(spec.fingerprint, index, "spec: fingerprint"));
  FingerprintField result{.name = TextOr(field.name, ""), .value = field.u64};
  if (field.type == KVERN_KV_F64) {
    result.value = field.f64;
  } else if (field.type == KVERN_KV_TEXT && field.text != nullptr) {
    result.value = std::string(field.text);
  } else if (field.type == KVERN_KV_DIGEST && field.digest != nullptr) {
    Digest digest;
    std::memcpy(digest.data(), field.digest, digest.size());
    result.value = digest;
  } else if (field.type != KVERN_KV_U64) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "spec: fingerprint field '{}': type {} is unknown or its value is null",
                  result.name, field.type);
  }
  return result;
}

template <typename From, typename To, size_t kFrom, size_t kTo>
void CopyCounts(const std::array<From, kFrom>& from, To (&to)[kTo]) {
  static_assert(kFrom <= kTo);
  std::ranges::copy(from, to);
}

kvern_kv_histogram Convert(const Histogram& histogram) {
  kvern_kv_histogram result = {};
  CopyCounts(histogram.buckets, result.buckets);
  result.count = histogram.count;
  result.sum = histogram.sum;
  return result;
}

kvern_kv_state_counts Convert(const StateCounts& counts) {
  return {.active = counts.active,
          .cached = counts.cached,
          .reserved = counts.reserved,
          .free = counts.free};
}

}  // namespace

kvern_kv_status StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return KVERN_KV_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return KVERN_KV_NOT_FOUND;
    case ErrorCode::kCorrupt:
      return KVERN_KV_CORRUPT;
    case ErrorCode::kUnsupported:
      return KVERN_KV_UNSUPPORTED;
    case ErrorCode::kOutOfMemory:
      return KVERN_KV_OUT_OF_MEMORY;
    case ErrorCode::kIo:
      return KVERN_KV_IO;
    case ErrorCode::kNonFinite:
    case ErrorCode::kOverloaded:
      break;
  }
  return KVERN_KV_INTERNAL;
}

Result<std::vector<TokenId>> ReadTokens(const uint32_t* tokens, size_t num_tokens) {
  if (num_tokens > 0 && tokens == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "tokens is null");
  }
  if (num_tokens > kMaxTokens) {
    return Errorf(ErrorCode::kInvalidArgument, "num_tokens is {}, at most {} are possible",
                  num_tokens, kMaxTokens);
  }
  std::vector<TokenId> result(num_tokens);
  std::transform(tokens, tokens + num_tokens, result.begin(),
                 [](uint32_t token) { return TokenId{token}; });
  return result;
}

Result<NamespaceSpec> ReadNamespaceSpec(const kvern_kv_namespace_spec* spec) {
  KVERN_ASSIGN_OR_RETURN(const kvern_kv_namespace_spec given, ReadStruct(spec, "spec"));
  NamespaceSpec result{.numerics_version = given.numerics_version,
                       .fingerprint = {},
                       .adapter = TextOr(given.adapter, ""),
                       .tenant = TextOr(given.tenant, "")};
  for (size_t i = 0; i < given.num_fields; ++i) {
    KVERN_ASSIGN_OR_RETURN(FingerprintField field, ReadField(given, i));
    result.fingerprint.push_back(std::move(field));
  }
  return result;
}

Result<Prompt> ReadPrompt(const kvern_kv_prompt& prompt) {
  constexpr std::array kRetentions = {Retention::kNormal, Retention::kLow, Retention::kHigh};
  if (prompt.num_tokens == 0) {
    return Errorf(ErrorCode::kInvalidArgument, "prompt: it has no tokens: give at least one");
  }
  if (prompt.retention >= kRetentions.size()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "prompt: retention {} is unknown: use KVERN_KV_KEEP_*", prompt.retention);
  }
  if (prompt.has_ttl && prompt.ttl_us < 0) {
    return Errorf(ErrorCode::kInvalidArgument, "prompt: ttl_us is {}: use at least 0",
                  prompt.ttl_us);
  }
  Prompt result{.ns = NamespaceId{prompt.ns},
                .tokens = {},
                .use_cache = !prompt.bypass_cache,
                .max_hit = prompt.has_max_hit ? prompt.max_hit : SIZE_MAX,
                .retention = kRetentions[prompt.retention]};
  if (prompt.has_ttl) result.ttl_us = prompt.ttl_us;
  return result;
}

Status WriteMiss(const Miss& miss, kvern_kv_miss* to) {
  KVERN_RETURN_IF_ERROR(CheckStruct(to, "miss"));
  kvern_kv_miss result = {};
  result.reason = static_cast<uint32_t>(miss.reason);
  result.position = miss.position;
  result.num_tokens = miss.num_tokens;
  result.has_difference = miss.differs_at && miss.wanted && miss.cached;
  if (result.has_difference) {
    result.differs_at = *miss.differs_at;
    result.wanted = static_cast<uint32_t>(*miss.wanted);
    result.cached = static_cast<uint32_t>(*miss.cached);
  }
  result.has_when = miss.when_us.has_value();
  result.when_us = miss.when_us.value_or(0);
  result.has_group = miss.group.has_value();
  result.group = static_cast<uint32_t>(miss.group.value_or(GroupId{}));
  result.cause = miss.cause.c_str();
  WriteStruct(result, to);
  return {};
}

kvern_kv_split ConvertSplit(const PromptSplit& split) {
  kvern_kv_split result = {};
  result.ram = split.ram;
  result.tier = split.tier;
  result.in_flight = split.in_flight;
  result.partial = split.partial;
  CopyCounts(split.miss, result.miss);
  return result;
}

kvern_kv_stats ConvertStats(const KvStats& stats) {
  kvern_kv_stats result = {};
  result.bytes = Convert(stats.bytes);
  result.peak_bytes = Convert(stats.peak_bytes);
  result.budget_bytes = stats.budget_bytes;
  result.index_bytes = stats.index_bytes;
  result.prompts = ConvertSplit(stats.prompts);
  result.resumes = ConvertSplit(stats.resumes);
  result.num_prompts = stats.num_prompts;
  result.num_resumes = stats.num_resumes;
  CopyCounts(stats.evicted_blocks, result.evicted_blocks);
  CopyCounts(stats.records_refused, result.records_refused);
  result.blocks_published = stats.blocks_published;
  result.blocks_merged = stats.blocks_merged;
  result.rows_copied = stats.rows_copied;
  result.one_answer_violations = stats.one_answer_violations;
  result.loads_started = stats.loads_started;
  result.blocks_loaded = stats.blocks_loaded;
  result.blocks_failed = stats.blocks_failed;
  result.take_overs = stats.take_overs;
  result.lifetime_us = Convert(stats.lifetime_us);
  result.idle_before_evict_us = Convert(stats.idle_before_evict_us);
  result.reuse_gap_us = Convert(stats.reuse_gap_us);
  return result;
}

Result<std::unique_ptr<BlockStore>> MakeStore(const kvern_kv_store* store) {
  KVERN_ASSIGN_OR_RETURN(const kvern_kv_store calls, ReadStruct(store, "options: store"));
  if (calls.copy_rows == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "options: store: copy_rows is null");
  }
  if (calls.allocate == nullptr) {
    return MakeHostStore([calls](GroupId group, std::byte* to, const std::byte* from, uint32_t n) {
      calls.copy_rows(calls.context, static_cast<uint32_t>(group), to, from, n);
    });
  }
  if (calls.release == nullptr || calls.zero == nullptr || calls.copy == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "options: store: with allocate, release, zero and copy are needed too");
  }
  return std::unique_ptr<BlockStore>(std::make_unique<CallbackStore>(calls));
}

Result<std::unique_ptr<Tier>> MakeTier(const kvern_kv_options& options) {
  if (options.tier != nullptr && options.tier_name != nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "options: tier and tier_name: give one of them");
  }
  if (options.tier_name != nullptr) {
    KVERN_ASSIGN_OR_RETURN(const TierRow* row, FindTier(options.tier_name));
    return row->make({.capacity_bytes = options.tier_capacity_bytes});
  }
  if (options.tier == nullptr) return std::unique_ptr<Tier>();
  KVERN_ASSIGN_OR_RETURN(const kvern_kv_tier calls, ReadStruct(options.tier, "options: tier"));
  if (calls.contains == nullptr || calls.start_load == nullptr || calls.start_store == nullptr ||
      calls.cancel == nullptr || calls.poll == nullptr || calls.remove == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "options: tier: a callback is null: all are needed");
  }
  return std::unique_ptr<Tier>(std::make_unique<CallbackTier>(calls));
}

Result<KvCacheOptions> ReadOptions(const kvern_kv_options& options) {
  const auto or_default = [](size_t value, size_t fallback) {
    return value == 0 ? fallback : value;
  };
  KvCacheOptions result{.groups = {},
                        .budget_bytes = options.budget_bytes,
                        .min_slab_bytes = or_default(options.min_slab_bytes, kSlabBytes),
                        .eviction = TextOr(options.eviction, "lru"),
                        .history_blocks = or_default(options.history_blocks, kDefaultHistoryBlocks),
                        .span_bytes_per_tenant = options.span_bytes_per_tenant,
                        .tier_io_blocks = or_default(options.tier_io_blocks, kDefaultTierIoBlocks),
                        .mac_key = {},
                        .recompute_cost = {}};
  for (size_t i = 0; i < std::min<size_t>(options.num_groups, 5); ++i) {
    KVERN_ASSIGN_OR_RETURN(const GroupSpec group, ReadGroup(options, i));
    result.groups.push_back(group);
  }
  KVERN_RETURN_IF_ERROR(CheckNumBlocks(result));
  if (result.history_blocks > kMaxHistoryBlocks || result.tier_io_blocks > kMaxTierIoBlocks) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "options: history_blocks {}, tier_io_blocks {}: at most {} and {} are possible",
                  result.history_blocks, result.tier_io_blocks, kMaxHistoryBlocks,
                  kMaxTierIoBlocks);
  }
  if (options.mac_key != nullptr) {
    std::memcpy(result.mac_key.emplace().bytes.data(), options.mac_key, sizeof(MacKey));
  }
  if (options.recompute_cost != nullptr) {
    result.recompute_cost = [call = options.recompute_cost,
                             context = options.recompute_cost_context](size_t position, size_t n) {
      return call(context, position, n);
    };
  }
  return result;
}

}  // namespace kvern::kv
