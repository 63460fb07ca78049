#include <nlohmann/json.hpp>

#include "server/api/routes.h"

namespace kvern::server {

void HandleHealth(const Call& call) {
  if (call.server.is_draining) {
    return call.Fail({.status = 503, .type = "unavailable_error", .message = "Shutting down"});
  }
  if (call.server.serving.load() == nullptr) {
    return call.Fail({.status = 503, .type = "unavailable_error", .message = "Loading model"});
  }
  call.Reply({{"status", "ok"}});
}

}  // namespace kvern::server
