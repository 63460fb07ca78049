// The cache as it is: memory in its states, the tree of texts, and letting go of what nobody uses.
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/service.h"
#include "server/api/inspect.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kDefaultDepth = 4, kMaxDepth = 64;
constexpr size_t kMaxNodes = 1000;
constexpr size_t kExcerptBytes = 120;

const char* ToString(kv::GroupKind kind) {
  switch (kind) {
    case kv::GroupKind::kFull:
      return "full";
    case kv::GroupKind::kWindow:
      return "window";
    case kv::GroupKind::kState:
      return "state";
  }
  return "";
}

Json GroupsBody(const kv::KvCacheOptions& options) {
  Json groups = Json::array();
  for (const kv::GroupSpec& group : options.groups) {
    Json body = {{"kind", ToString(group.kind)},
                 {"block_tokens", group.block_tokens},
                 {"block_bytes", group.block_bytes}};
    if (group.kind == kv::GroupKind::kWindow) body["window"] = group.window;
    groups.push_back(std::move(body));
  }
  return groups;
}

Json OwnBody(const Call& call) {
  const Engine& engine = *call.serving().engine;
  const auto ns = EngineAccess::FindNamespace(engine, OwnerOf(call));
  const kv::NamespaceUsage usage =
      ns ? EngineAccess::CacheOf(engine).usage(*ns) : kv::NamespaceUsage();
  Json body = {{"active_bytes", usage.active_bytes},
               {"cached_bytes", usage.cached_bytes},
               {"reserved_bytes", usage.reserved_bytes},
               {"peak_active_bytes", usage.peak_active_bytes},
               {"peak_cached_bytes", usage.peak_cached_bytes}};
  const kv::Quota quota = EngineAccess::QuotaOf(engine, call.caller.tenant);
  if (quota.share_bytes != SIZE_MAX) body["share_bytes"] = quota.share_bytes;
  body["floor_bytes"] = quota.floor_bytes;
  return body;
}

void AddPool(const EngineStats& stats, Json& body) {
  const kv::KvStats& kv = stats.kv;
  body["bytes"] = StatesBody(kv.bytes);
  body["peak_bytes"] = StatesBody(kv.peak_bytes);
  body["index_bytes"] = kv.index_bytes;
  body["prompts"] = PromptsBody(kv.prompts);
  body["resumes"] = PromptsBody(kv.resumes);
  Json evicted = Json::object();
  for (size_t i = 0; i < kv::kNumEvictionCauses; ++i) {
    const auto cause = static_cast<kv::EvictionCause>(i);
    evicted[std::string(kv::ToString(cause))] = kv.evicted_blocks[i];
  }
  body["evicted_blocks"] = std::move(evicted);
  body["one_answer_violations"] = kv.one_answer_violations;
  body["self_checks"] = stats.self_checks;
  body["self_check_failures"] = stats.self_check_failures;
}

}  // namespace

Json KvBody(const Call& call) {
  const Serving& serving = call.serving();
  const kv::KvCacheOptions& options = EngineAccess::CacheOf(*serving.engine).options();
  const EngineStats stats = serving.engine->stats();
  size_t block_bytes = 0;
  for (const kv::GroupSpec& group : options.groups) block_bytes += group.block_bytes;
  const size_t block_tokens = options.groups[0].block_tokens;
  Json body = {{"model", serving.name},
               {"budget_bytes", stats.kv.budget_bytes},
               {"block_tokens", block_tokens},
               {"block_bytes", block_bytes},
               {"bytes_per_token", serving.engine->kv_bytes_per_token()},
               {"capacity_tokens", stats.kv.budget_bytes / block_bytes * block_tokens},
               {"eviction", options.eviction},
               {"groups", GroupsBody(options)},
               {"own", OwnBody(call)}};
  if (!call.VisibleTenant()) AddPool(stats, body);
  return body;
}

void HandleKv(const Call& call) { call.Reply(KvBody(call)); }

void HandleKvTree(const Call& call) {
  const auto depth = QueryCount(call, "depth", kDefaultDepth, kMaxDepth);
  if (!depth) return;
  const Serving& serving = call.serving();
  const auto ns = EngineAccess::FindNamespace(*serving.engine, OwnerOf(call));
  // In a sharing group the texts may be those of others: their shape is told, and no word.
  const bool has_text = !call.server.options.share_group || !call.VisibleTenant();
  Json nodes = Json::array();
  bool is_truncated = false;
  if (ns) {
    for (const kv::TreeNode& node : EngineAccess::CacheOf(*serving.engine).Tree(*ns)) {
      if (node.depth == 0) continue;
      if (node.depth > *depth || nodes.size() == kMaxNodes) {
        is_truncated = true;
        continue;
      }
      Json body = {{"depth", node.depth},
                   {"position", node.position},
                   {"num_tokens", node.tokens.size()},
                   {"holders", node.num_holders},
                   {"uses", node.num_uses}};
      if (has_text) body["text"] = ExcerptOf(serving, node.tokens, kExcerptBytes);
      nodes.push_back(std::move(body));
    }
  }
  call.Reply({{"nodes", std::move(nodes)}, {"truncated", is_truncated}});
}

// Who may see all evicts all.
void HandleKvReset(const Call& call) {
  const Request owner = OwnerOf(call);
  const auto place = std::make_shared<WorkerPool::Place>(*call.server.pool);
  EngineAccess::AskDropCached(
      *call.serving().engine, call.VisibleTenant() ? &owner : nullptr,
      [place, call = std::make_shared<const Call>(call.WithoutBody())](size_t num_blocks) {
        place->Post([call, num_blocks] { call->Reply({{"evicted_blocks", num_blocks}}); });
      });
}

}  // namespace kvern::server
