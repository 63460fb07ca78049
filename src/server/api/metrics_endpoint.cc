#include "server/api/routes.h"
#include "server/metrics.h"

namespace kvern::server {

void HandleMetrics(const Call& call) {
  const Serving& serving = call.serving();
  HttpReply reply = call.Head(200);
  reply.content_type = kMetricsContentType;
  reply.body = call.server.metrics->ToText(
      serving.engine->stats(), serving.name, serving.max_running,
      call.caller.can_administer ? MetricsReader::kAdministrator : MetricsReader::kAnybody);
  call.sink->Send(std::move(reply));
}

}  // namespace kvern::server
