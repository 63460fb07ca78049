#include "server/api/routes.h"

namespace kvern::server {

void HandleNotOffered(const Call& call) {
  call.Fail({.status = 501,
             .type = "not_supported_error",
             .message = call.request.path + ": this server generates text only",
             .code = "not_offered"});
}

}  // namespace kvern::server
