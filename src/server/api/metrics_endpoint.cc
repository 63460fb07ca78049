#include "server/api/routes.h"
#include "server/metrics.h"

namespace kvern::server {

void HandleMetrics(const Call& call) {
  const Serving& serving = call.serving();
  HttpReply reply = call.Head(200);
  reply.content_type = kMetricsContentType;
  reply.body = call.server.metrics.ToText(serving.engine->stats(), serving.name,
                                          serving.options.scheduler.max_running);
  call.sink->Send(std::move(reply));
}

}  // namespace kvern::server
