// The C API: caches, lookups, admission, sequences. kvern_kv_report.cc has the rest.
#include "kvern/kvern_kv.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kv/kvern_kv_convert.h"
#include "kv/kvern_kv_handles.h"
#include "kvern/kv.h"

using kvern::ErrorCode;
using kvern::Errorf;
using kvern::Status;
using kvern::kv::Call;
using kvern::kv::CheckNamespace;
using kvern::kv::CheckNotNull;
namespace kv = kvern::kv;

namespace {

thread_local char last_error[1024] = "";

Status Live(const kvern_kv_lease* lease) {
  KVERN_RETURN_IF_ERROR(CheckNotNull(lease, "lease"));
  if (lease->lease) return {};
  return Errorf(ErrorCode::kInvalidArgument, "the lease has ended: free it, and look up again");
}

Status Live(const kvern_kv_waiter* waiter) {
  KVERN_RETURN_IF_ERROR(CheckNotNull(waiter, "waiter"));
  if (waiter->waiter) return {};
  return Errorf(ErrorCode::kInvalidArgument, "the waiter has ended: free it");
}

Status CheckNumTokens(size_t num_tokens) {
  if (num_tokens <= kv::kMaxTokens) return {};
  return Errorf(ErrorCode::kOutOfMemory,
                "room for {} tokens is more than any budget has: ask for less", num_tokens);
}

template <typename Id>
uint64_t Number(Id id) {
  return static_cast<uint64_t>(id);
}

}  // namespace

namespace kvern::kv {

kvern_kv_status Fail(const char* function, kvern_kv_status status, const char* message) noexcept {
  std::snprintf(last_error, sizeof(last_error), "%s: %s", function, message);
  return status;
}

Status CheckNotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return Errorf(ErrorCode::kInvalidArgument, "{} is null", name);
}

Status CheckNamespace(const kvern_kv_cache* cache, uint32_t ns) {
  KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
  const uint32_t num_namespaces = cache->num_namespaces.load(std::memory_order_acquire);
  if (ns < num_namespaces) return {};
  return Errorf(ErrorCode::kInvalidArgument, "namespace {} is not one of the {} that are open", ns,
                num_namespaces);
}

}  // namespace kvern::kv

uint32_t kvern_kv_version(void) { return KVERN_KV_VERSION; }

const char* kvern_kv_last_error(void) { return last_error; }

void kvern_kv_bytes_free(kvern_kv_bytes* bytes) {
  if (bytes == nullptr) return;
  std::free(bytes->data);
  *bytes = {};
}

// ---- The cache

kvern_kv_status kvern_kv_cache_new(const kvern_kv_options* options, kvern_kv_cache** cache) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    KVERN_ASSIGN_OR_RETURN(const kvern_kv_options given, kv::ReadStruct(options, "options"));
    KVERN_ASSIGN_OR_RETURN(kv::KvCacheOptions converted, kv::ReadOptions(given));
    auto made = std::make_unique<kvern_kv_cache>();
    KVERN_ASSIGN_OR_RETURN(made->store, kv::MakeStore(given.store));
    KVERN_ASSIGN_OR_RETURN(made->tier, kv::MakeTier(given));
    converted.tier = made->tier.get();
    KVERN_ASSIGN_OR_RETURN(made->cache, kv::KvCache::Make(std::move(converted), made->store.get()));
    *cache = made.release();
    return {};
  });
}

kvern_kv_status kvern_kv_cache_free(kvern_kv_cache* cache) {
  return Call(__func__, [&]() -> Status {
    if (cache != nullptr && cache->num_handles > 0) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "{} leases, waiters and sequences are left: free them before the cache",
                    cache->num_handles);
    }
    delete cache;
    return {};
  });
}

kvern_kv_status kvern_kv_set_time(kvern_kv_cache* cache, int64_t now_us) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    if (now_us < cache->now_us) {
      return Errorf(ErrorCode::kInvalidArgument, "{} us is before {} us: time goes forward", now_us,
                    cache->now_us);
    }
    cache->cache->SetTime(now_us);
    cache->now_us = now_us;
    return {};
  });
}

kvern_kv_status kvern_kv_open_namespace(kvern_kv_cache* cache, const kvern_kv_namespace_spec* spec,
                                        uint32_t* ns) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(ns, "ns"));
    KVERN_ASSIGN_OR_RETURN(const kv::NamespaceSpec given, kv::ReadNamespaceSpec(spec));
    KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId id, cache->cache->OpenNamespace(given));
    *ns = static_cast<uint32_t>(id);
    if (*ns >= cache->num_namespaces.load()) {
      cache->num_namespaces.store(*ns + 1, std::memory_order_release);
    }
    return {};
  });
}

// ---- Leases

kvern_kv_status kvern_kv_lookup(kvern_kv_cache* cache, const kvern_kv_prompt* prompt,
                                kvern_kv_lease** lease) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(lease, "lease"));
    KVERN_ASSIGN_OR_RETURN(const kvern_kv_prompt given, kv::ReadStruct(prompt, "prompt"));
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, given.ns));
    KVERN_ASSIGN_OR_RETURN(kv::Prompt wanted, kv::ReadPrompt(given));
    auto made = std::make_unique<kvern_kv_lease>(cache);
    KVERN_ASSIGN_OR_RETURN(made->tokens, kv::ReadTokens(given.tokens, given.num_tokens));
    wanted.tokens = made->tokens;
    made->lease.emplace(cache->cache->Lookup(wanted));
    *lease = made.release();
    return {};
  });
}

void kvern_kv_lease_free(kvern_kv_lease* lease) { delete lease; }

kvern_kv_status kvern_kv_lease_get(const kvern_kv_lease* lease, kvern_kv_lease_info* info) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    KVERN_RETURN_IF_ERROR(kv::CheckStruct(info, "info"));
    const kv::Lease& found = *lease->lease;
    kvern_kv_lease_info result = {};
    result.num_tokens = found.num_tokens();
    result.num_ram_tokens = found.num_ram_tokens();
    result.num_partial_tokens = found.num_partial_tokens();
    result.num_tier_tokens = found.num_tier_tokens();
    result.num_misses = found.misses().size();
    if (const auto producer = found.producer()) {
      result.has_producer = true;
      result.producer_end = producer->end;
      result.has_producer_sequence = producer->sequence.has_value();
      if (producer->sequence) result.producer_sequence = Number(*producer->sequence);
    }
    kv::WriteStruct(result, info);
    return {};
  });
}

kvern_kv_status kvern_kv_lease_miss(const kvern_kv_lease* lease, size_t index,
                                    kvern_kv_miss* miss) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    const auto misses = lease->lease->misses();
    if (index >= misses.size()) {
      return Errorf(ErrorCode::kInvalidArgument, "there is no miss {}: the lease has {}", index,
                    misses.size());
    }
    return kv::WriteMiss(misses[index], miss);
  });
}

// ---- Loads

kvern_kv_status kvern_kv_start_load(kvern_kv_lease* lease) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    return lease->owner()->cache->StartLoad(*lease->lease);
  });
}

kvern_kv_status kvern_kv_poll(kvern_kv_lease* lease, kvern_kv_load_progress* progress) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    KVERN_RETURN_IF_ERROR(kv::CheckStruct(progress, "progress"));
    kv::LoadProgress found = lease->owner()->cache->Poll(*lease->lease);
    lease->failure = std::move(found.failure);
    lease->block_states.clear();
    for (const kv::LoadState state : found.blocks) {
      lease->block_states.push_back(static_cast<uint8_t>(state));
    }
    kvern_kv_load_progress result = {};
    result.blocks = lease->block_states.data();
    result.num_blocks = lease->block_states.size();
    result.failure = lease->failure.c_str();
    result.done = found.done;
    kv::WriteStruct(result, progress);
    return {};
  });
}

kvern_kv_status kvern_kv_install(kvern_kv_lease* lease, size_t* num_tokens) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    const size_t gained = lease->owner()->cache->Install(*lease->lease);
    if (num_tokens != nullptr) *num_tokens = gained;
    return {};
  });
}

kvern_kv_status kvern_kv_poll_tier(kvern_kv_cache* cache) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    cache->cache->PollTier();
    return {};
  });
}

// ---- Admission and waiting

kvern_kv_status kvern_kv_admit(kvern_kv_lease* lease, const kvern_kv_admit_options* options,
                               kvern_kv_sequence** sequence) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    kv::AdmitOptions admit;
    if (options != nullptr) {
      KVERN_ASSIGN_OR_RETURN(const kvern_kv_admit_options given,
                             kv::ReadStruct(options, "options"));
      KVERN_RETURN_IF_ERROR(CheckNumTokens(given.reserve_tokens));
      admit = {.priority = given.priority,
               .publish = !given.is_private,
               .is_resume = given.is_resume,
               .reserve_tokens = given.reserve_tokens};
    }
    auto made = std::make_unique<kvern_kv_sequence>(lease->owner());
    KVERN_ASSIGN_OR_RETURN(auto admitted, lease->owner()->cache->Admit(*lease->lease, admit));
    made->sequence.emplace(std::move(admitted));
    lease->lease.reset();
    *sequence = made.release();
    return {};
  });
}

kvern_kv_status kvern_kv_wait(kvern_kv_lease* lease, int32_t priority, kvern_kv_waiter** waiter) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(lease));
    KVERN_RETURN_IF_ERROR(CheckNotNull(waiter, "waiter"));
    auto made = std::make_unique<kvern_kv_waiter>(lease->owner());
    KVERN_ASSIGN_OR_RETURN(auto waiting, lease->owner()->cache->Wait(*lease->lease, priority));
    made->tokens = std::move(lease->tokens);  // at the same address
    made->waiter.emplace(std::move(waiting));
    lease->lease.reset();
    *waiter = made.release();
    return {};
  });
}

void kvern_kv_waiter_free(kvern_kv_waiter* waiter) {
  if (waiter == nullptr) return;
  if (waiter->waiter) {
    std::erase_if(waiter->owner()->events,
                  [&](const kv::Event& event) { return event.waiter == waiter->waiter->id(); });
  }
  delete waiter;
}

kvern_kv_status kvern_kv_waiter_id(const kvern_kv_waiter* waiter, uint64_t* id) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(waiter));
    KVERN_RETURN_IF_ERROR(CheckNotNull(id, "id"));
    *id = Number(waiter->waiter->id());
    return {};
  });
}

kvern_kv_status kvern_kv_waiter_producer(const kvern_kv_waiter* waiter, bool* has_producer,
                                         uint64_t* sequence) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(waiter));
    KVERN_RETURN_IF_ERROR(CheckNotNull(has_producer, "has_producer"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    const auto producer = waiter->waiter->producer();
    *has_producer = producer.has_value();
    *sequence = producer ? Number(*producer) : 0;
    return {};
  });
}

kvern_kv_status kvern_kv_retry(kvern_kv_waiter* waiter, kvern_kv_lease** lease) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(Live(waiter));
    KVERN_RETURN_IF_ERROR(CheckNotNull(lease, "lease"));
    kvern_kv_cache* const owner = waiter->owner();
    auto made = std::make_unique<kvern_kv_lease>(owner);
    const kv::WaiterId id = waiter->waiter->id();
    made->tokens = std::move(waiter->tokens);  // at the same address
    made->lease.emplace(owner->cache->Retry(std::move(*waiter->waiter)));
    waiter->waiter.reset();
    std::erase_if(owner->events, [&](const kv::Event& event) { return event.waiter == id; });
    *lease = made.release();
    return {};
  });
}

kvern_kv_status kvern_kv_take_events(kvern_kv_cache* cache, kvern_kv_event* events, size_t capacity,
                                     size_t* num_events) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(num_events, "num_events"));
    if (capacity > 0) KVERN_RETURN_IF_ERROR(CheckNotNull(events, "events"));
    const auto fresh = cache->cache->TakeEvents();
    cache->events.insert(cache->events.end(), fresh.begin(), fresh.end());
    *num_events = std::min(capacity, cache->events.size());
    const auto end = cache->events.begin() + static_cast<ptrdiff_t>(*num_events);
    std::transform(cache->events.begin(), end, events, [](const kv::Event& event) {
      return kvern_kv_event{.waiter = Number(event.waiter),
                            .kind = static_cast<uint32_t>(event.kind)};
    });
    cache->events.erase(cache->events.begin(), end);
    return {};
  });
}

// ---- Sequences

void kvern_kv_sequence_free(kvern_kv_sequence* sequence) { delete sequence; }

kvern_kv_status kvern_kv_sequence_get(const kvern_kv_sequence* sequence,
                                      kvern_kv_sequence_info* info) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    KVERN_RETURN_IF_ERROR(kv::CheckStruct(info, "info"));
    const kv::Sequence& own = *sequence->sequence;
    kvern_kv_sequence_info result = {};
    result.id = Number(own.id());
    result.length = own.length();
    result.committed = own.committed();
    result.num_published = own.num_published();
    result.effective_priority = own.effective_priority();
    kv::WriteStruct(result, info);
    return {};
  });
}

kvern_kv_status kvern_kv_reserve(kvern_kv_sequence* sequence, size_t num_tokens) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    KVERN_RETURN_IF_ERROR(CheckNumTokens(num_tokens));
    return sequence->sequence->Reserve(num_tokens);
  });
}

kvern_kv_status kvern_kv_append(kvern_kv_sequence* sequence, const uint32_t* tokens,
                                size_t num_tokens) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    KVERN_ASSIGN_OR_RETURN(const auto own, kv::ReadTokens(tokens, num_tokens));
    return sequence->sequence->Append(own);
  });
}

kvern_kv_status kvern_kv_commit(kvern_kv_sequence* sequence, size_t length) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    kv::Sequence& own = *sequence->sequence;
    if (length < own.committed() || length > own.length()) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "length {} is not from {}, which is committed, to {}, which is written", length,
                    own.committed(), own.length());
    }
    own.Commit(length);
    return {};
  });
}

kvern_kv_status kvern_kv_truncate(kvern_kv_sequence* sequence, size_t length) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    kv::Sequence& own = *sequence->sequence;
    if (length > own.length()) {
      return Errorf(ErrorCode::kInvalidArgument, "length {} is beyond the sequence's {}", length,
                    own.length());
    }
    return own.Truncate(length);
  });
}

kvern_kv_status kvern_kv_fork(kvern_kv_sequence* sequence, kvern_kv_sequence** fork) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(fork, "fork"));
    auto made = std::make_unique<kvern_kv_sequence>(sequence->owner());
    made->sequence.emplace(sequence->sequence->Fork());
    *fork = made.release();
    return {};
  });
}

kvern_kv_status kvern_kv_view(const kvern_kv_sequence* sequence, uint32_t group,
                              void* const** blocks, size_t* num_blocks) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(sequence, "sequence"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(blocks, "blocks"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(num_blocks, "num_blocks"));
    const size_t num_groups = sequence->owner()->cache->options().groups.size();
    if (group >= num_groups) {
      return Errorf(ErrorCode::kInvalidArgument, "there is no group {}: the cache has {}", group,
                    num_groups);
    }
    const kvern::PagedView view = sequence->sequence->View(kv::GroupId{group});
    *blocks = static_cast<void* const*>(static_cast<const void*>(view.blocks));
    *num_blocks = view.num_blocks;
    return {};
  });
}
