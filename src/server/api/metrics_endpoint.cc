#include <fmt/format.h>

#include "engine/service.h"
#include "server/api/routes.h"
#include "server/metrics.h"

namespace kvern::server {

namespace {

std::vector<TenantMemory> TenantMemories(const Call& call) {
  const Engine& engine = *call.serving().engine;
  std::vector<TenantMemory> memories;
  for (const TenantQuota& row : call.server.keys->quotas()) {
    Request owner;
    owner.tenant = row.tenant;
    const auto ns = EngineAccess::FindNamespace(engine, owner);
    memories.push_back(
        {.tenant = row.tenant,
         .usage = ns ? EngineAccess::CacheOf(engine).usage(*ns) : kv::NamespaceUsage(),
         .quota = EngineAccess::QuotaOf(engine, row.tenant)});
  }
  return memories;
}

}  // namespace

void HandleMetrics(const Call& call) {
  if (!call.server.options.has_metrics) {
    return call.Fail({.status = 501,
                      .type = "not_supported_error",
                      .message = "/metrics is switched off: start without --no-metrics"});
  }
  const Serving& serving = call.serving();
  HttpReply reply = call.Head(200);
  reply.headers.push_back({"Process-Start-Time-Unix", fmt::to_string(serving.loaded_unix_s)});
  reply.content_type = kMetricsContentType;
  reply.body = call.server.metrics.ToText(
      serving.engine->stats(), serving.name, serving.options.scheduler.max_running,
      call.caller.can_administer ? MetricsReader::kAdministrator : MetricsReader::kAnybody,
      TenantMemories(call));
  call.sink->Send(std::move(reply));
}

}  // namespace kvern::server
