// The C API: cached text, explanations, statistics.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/kvern_kv_convert.h"
#include "kv/kvern_kv_handles.h"
#include "kvern/kv.h"
#include "kvern/kvern_kv.h"

using kvern::ErrorCode;
using kvern::Errorf;
using kvern::Status;
using kvern::TokenId;
using kvern::kv::Call;
using kvern::kv::CheckNamespace;
using kvern::kv::CheckNotNull;
namespace kv = kvern::kv;

namespace {

// A name from a table of string literals.
template <typename Enum>
const char* NameOf(uint32_t number, size_t num_names) {
  return number < num_names ? kv::ToString(static_cast<Enum>(number)).data() : nullptr;
}

}  // namespace

// ---- Cached text

kvern_kv_status kvern_kv_keep_span(kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                   size_t num_tokens, int64_t ttl_us, kvern_kv_span_grant* grant) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    KVERN_ASSIGN_OR_RETURN(const auto text, kv::ReadTokens(tokens, num_tokens));
    if (grant != nullptr) KVERN_RETURN_IF_ERROR(kv::CheckStruct(grant, "grant"));
    if (ttl_us <= 0) {
      return Errorf(ErrorCode::kInvalidArgument, "ttl_us is {}: use more than 0", ttl_us);
    }
    const kv::SpanGrant granted = cache->cache->KeepSpan(kv::NamespaceId{ns}, text, ttl_us);
    if (grant == nullptr) return {};
    kvern_kv_span_grant result = {};
    result.num_tokens = granted.num_tokens;
    result.expires_us = granted.expires_us;
    kv::WriteStruct(result, grant);
    return {};
  });
}

kvern_kv_status kvern_kv_drop_cached(kvern_kv_cache* cache, const uint32_t* ns,
                                     size_t* num_blocks) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    std::optional<kv::NamespaceId> one;
    if (ns != nullptr) {
      KVERN_RETURN_IF_ERROR(CheckNamespace(cache, *ns));
      one = kv::NamespaceId{*ns};
    }
    const size_t num_dropped = cache->cache->DropCached(one);
    if (num_blocks != nullptr) *num_blocks = num_dropped;
    return {};
  });
}

kvern_kv_status kvern_kv_export(const kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                size_t num_tokens, kvern_kv_bytes* records) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    KVERN_RETURN_IF_ERROR(CheckNotNull(records, "records"));
    KVERN_ASSIGN_OR_RETURN(const auto text, kv::ReadTokens(tokens, num_tokens));
    const std::vector<std::byte> found = cache->cache->Export(kv::NamespaceId{ns}, text);
    auto* const copy = static_cast<uint8_t*>(std::malloc(std::max<size_t>(found.size(), 1)));
    if (copy == nullptr) throw std::bad_alloc();
    std::ranges::copy(found, reinterpret_cast<std::byte*>(copy));
    *records = {.data = copy, .size = found.size()};
    return {};
  });
}

kvern_kv_status kvern_kv_import(kvern_kv_cache* cache, uint32_t ns, const void* records,
                                size_t num_bytes, size_t* num_blocks) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    if (num_bytes > 0) KVERN_RETURN_IF_ERROR(CheckNotNull(records, "records"));
    const std::span bytes(static_cast<const std::byte*>(records), num_bytes);
    KVERN_ASSIGN_OR_RETURN(const size_t num_imported,
                           cache->cache->Import(kv::NamespaceId{ns}, bytes));
    if (num_blocks != nullptr) *num_blocks = num_imported;
    return {};
  });
}

// ---- Reports

const char* kvern_kv_miss_reason_name(uint32_t reason) {
  return NameOf<kv::MissReason>(reason, kv::kNumMissReasons);
}

kvern_kv_status kvern_kv_explain(const kvern_kv_cache* cache, uint32_t ns, const uint32_t* tokens,
                                 size_t num_tokens, kvern_kv_explanation** explanation) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    KVERN_RETURN_IF_ERROR(CheckNotNull(explanation, "explanation"));
    KVERN_ASSIGN_OR_RETURN(const auto text, kv::ReadTokens(tokens, num_tokens));
    if (text.empty()) return Errorf(ErrorCode::kInvalidArgument, "num_tokens is 0: give a prompt");
    auto made = std::make_unique<kvern_kv_explanation>();
    made->explanation = cache->cache->Explain(kv::NamespaceId{ns}, text);
    made->text = made->explanation.ToText();
    *explanation = made.release();
    return {};
  });
}

void kvern_kv_explanation_free(kvern_kv_explanation* explanation) { delete explanation; }

kvern_kv_status kvern_kv_explanation_get(const kvern_kv_explanation* explanation,
                                         kvern_kv_split* split, size_t* num_misses) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(explanation, "explanation"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(split, "split"));
    KVERN_RETURN_IF_ERROR(CheckNotNull(num_misses, "num_misses"));
    *split = kv::ConvertSplit(explanation->explanation.split);
    *num_misses = explanation->explanation.misses.size();
    return {};
  });
}

kvern_kv_status kvern_kv_explanation_miss(const kvern_kv_explanation* explanation, size_t index,
                                          kvern_kv_miss* miss) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(explanation, "explanation"));
    const auto& misses = explanation->explanation.misses;
    if (index >= misses.size()) {
      return Errorf(ErrorCode::kInvalidArgument, "there is no miss {}: the explanation has {}",
                    index, misses.size());
    }
    return kv::WriteMiss(misses[index], miss);
  });
}

const char* kvern_kv_explanation_text(const kvern_kv_explanation* explanation) {
  return explanation == nullptr ? "" : explanation->text.c_str();
}

kvern_kv_status kvern_kv_get_stats(const kvern_kv_cache* cache, kvern_kv_stats* stats) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    KVERN_RETURN_IF_ERROR(kv::CheckStruct(stats, "stats"));
    kv::WriteStruct(kv::ConvertStats(cache->cache->stats()), stats);
    return {};
  });
}

const char* kvern_kv_eviction_cause_name(uint32_t cause) {
  return NameOf<kv::EvictionCause>(cause, kv::kNumEvictionCauses);
}

const char* kvern_kv_record_refusal_name(uint32_t refusal) {
  return NameOf<kv::RecordRefusal>(refusal, kv::kNumRecordRefusals);
}

kvern_kv_status kvern_kv_get_usage(const kvern_kv_cache* cache, uint32_t ns,
                                   kvern_kv_usage* usage) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    KVERN_RETURN_IF_ERROR(kv::CheckStruct(usage, "usage"));
    const kv::NamespaceUsage found = cache->cache->usage(kv::NamespaceId{ns});
    kvern_kv_usage result = {};
    result.active_bytes = found.active_bytes;
    result.cached_bytes = found.cached_bytes;
    result.peak_active_bytes = found.peak_active_bytes;
    result.peak_cached_bytes = found.peak_cached_bytes;
    kv::WriteStruct(result, usage);
    return {};
  });
}

kvern_kv_status kvern_kv_visit_tree(const kvern_kv_cache* cache, uint32_t ns,
                                    void (*visit)(void* context, const kvern_kv_tree_node* node),
                                    void* context) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNamespace(cache, ns));
    if (visit == nullptr) return Errorf(ErrorCode::kInvalidArgument, "visit is null");
    for (const kv::TreeNode& node : cache->cache->Tree(kv::NamespaceId{ns})) {
      std::vector<uint32_t> tokens;
      for (const TokenId token : node.tokens) tokens.push_back(static_cast<uint32_t>(token));
      const kvern_kv_tree_node given = {.struct_size = sizeof(kvern_kv_tree_node),
                                        .depth = node.depth,
                                        .position = node.position,
                                        .tokens = tokens.data(),
                                        .num_tokens = tokens.size(),
                                        .num_holders = node.num_holders,
                                        .num_uses = node.num_uses};
      visit(context, &given);
    }
    return {};
  });
}

kvern_kv_status kvern_kv_check_invariants(const kvern_kv_cache* cache) {
  return Call(__func__, [&]() -> Status {
    KVERN_RETURN_IF_ERROR(CheckNotNull(cache, "cache"));
    cache->cache->CheckInvariants();
    return {};
  });
}
